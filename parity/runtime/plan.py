"""Which traces a set of cases needs: each case's own, and that of its baseline on a single device.

A baseline that is a case's own training, or another case's baseline, is recorded once.
"""

import shutil
from pathlib import Path

import msgspec

from parity.config.baseline import baseline, why_not
from parity.config.schema import Case
from parity.runtime.job import Answer


class Task:
    """One training, to be recorded by both backends. `users`: the cases, by number, that wait for it."""

    def __init__(self, case: Case, folder: Path, kept: bool) -> None:
        self.case = case
        self.folder = folder
        self.kept = kept
        self.users: set[int] = set()
        self.answers: dict[str, Answer] = {}  # by backend

    def release(self, user: int) -> None:
        """A case has been judged; what nobody waits for any more is deleted, unless it is to be kept."""
        self.users.discard(user)
        if not self.users and not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)


class Plan:
    """The tasks in the order in which they are to be run. `own`, `baselines`: each case's task, by its number."""

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
        # A baseline before its first user, so that what is judged can be deleted early.
        needed = {id(task): task for task in (*self.own, *trainings.values()) if task.users}
        self.tasks = sorted(needed.values(), key=lambda task: (min(task.users), task.case.strategy != "single"))

    def needs(self, number: int) -> list[Task]:
        """The tasks that a case waits for."""
        return [task for task in (self.own[number], self.baselines[number]) if task]


def _training(case: Case) -> bytes:
    """All of a case but its name."""
    return msgspec.json.encode(msgspec.structs.replace(case, name=""))
