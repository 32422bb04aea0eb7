"""The traces that a set of cases needs: each case's own, and its baseline's, the same training on a single device.

A training that several cases need, as their own or as their baseline, is recorded only once.
"""

import shutil
from pathlib import Path

import msgspec

from parity.config.baseline import baseline, why_not
from parity.config.schema import Case
from parity.runtime.job import Answer


class Task:
    """A training that both backends record; `users` are the numbers of the cases that need it."""

    def __init__(self, case: Case, folder: Path, kept: bool) -> None:
        self.case = case
        self.folder = folder
        self.kept = kept
        self.users: set[int] = set()
        self.answers: dict[str, Answer] = {}  # by backend

    def release(self, user: int) -> None:
        """Note that a case no longer needs this trace; delete the trace after its last user, unless it is kept."""
        self.users.discard(user)
        if not self.users and not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)


class Plan:
    """The tasks in the order in which to run them; `own` and `baselines` hold each case's tasks by its number.

    A baseline is None if the case has none (see `why_not`).
    """

    def __init__(self, cases: list[Case], scratch: Path, keep: Path | None) -> None:
        self.own = [Task(case, (keep or scratch) / case.name, keep is not None) for case in cases]
        trainings = {_training(task.case): task for task in self.own}
        self.baselines: list[Task | None] = []
        for number, case in enumerate(cases):
            if why_not(case):
                self.baselines.append(None)
                continue
            single = baseline(case)
            task = Task(single, scratch / "baselines" / str(number), False)
            self.baselines.append(trainings.setdefault(_training(single), task))
        for number in range(len(cases)):
            for task in self.needs(number):
                task.users.add(number)
        # A baseline runs just before its first user, so that traces can be compared and deleted early.
        needed = {id(task): task for task in (*self.own, *trainings.values()) if task.users}
        self.tasks = sorted(needed.values(), key=lambda task: (min(task.users), task.case.distribution.is_distributed))

    def needs(self, number: int) -> list[Task]:
        """Return the tasks that a case needs."""
        return [task for task in (self.own[number], self.baselines[number]) if task]


def _training(case: Case) -> bytes:
    """Return a key that two cases share if they differ in name only."""
    return msgspec.json.encode(msgspec.structs.replace(case, name=""))
