"""Which traces a set of cases needs: each case's own, and that of its baseline on a single device.

Trainings that differ in nothing but the case's name are recorded once.
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
        self.tasks: list[Task] = []
        self.own: list[Task] = []
        self.baselines: list[Task | None] = []
        known: dict[bytes, Task] = {}
        for number, case in enumerate(cases):
            folder = (keep or scratch) / case.name
            self.own.append(self._task(known, case, folder, keep is not None, number))
        for number, case in enumerate(cases):
            single = None if why_not(case) else baseline(case)
            folder = scratch / "baselines" / str(number)
            self.baselines.append(self._task(known, single, folder, False, number) if single else None)
        # A baseline before its first user, so that what is judged can be deleted early.
        self.tasks.sort(key=lambda task: (min(task.users), task.case.strategy != "single"))

    def needs(self, number: int) -> list[Task]:
        """The tasks that a case waits for."""
        return [task for task in (self.own[number], self.baselines[number]) if task]

    def _task(self, known: dict[bytes, Task], case: Case, folder: Path, kept: bool, user: int) -> Task:
        key = msgspec.json.encode(msgspec.structs.replace(case, name=""))
        if key not in known:
            known[key] = Task(case, folder, kept)
            self.tasks.append(known[key])
        known[key].users.add(user)
        return known[key]
