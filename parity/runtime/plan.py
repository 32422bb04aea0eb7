"""The traces that a set of cases needs: each case's own, and its baseline's, the same training on a single device.

A training that several cases need, as their own or as their baseline, is recorded only once.
"""

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import msgspec

from parity.config.devices import baseline, why_no_baseline
from parity.config.schema import Case
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Worker, begun, ended


class Task:
    """A training, with a planted fault if there is one, that each side records once for the cases `users`."""

    def __init__(self, case: Case, folder: Path, kept: bool, fault: str = "") -> None:
        self.case, self.folder, self.kept, self.fault = case, folder, kept, fault
        self.users: set[str] = set()
        self._lock = threading.Lock()
        self._answers: dict[str, Future[Answer]] = {}

    def begin(self, sides: Sequence[Worker]) -> None:
        """Begin to record on the given sides, except on one where a case that needs the same training has done so."""
        with self._lock:
            for side in sides:
                if side.name not in self._answers:
                    folder = str((self.folder / side.name).absolute())
                    job = Job(case=self.case, runs=RUNS[side.name], folder=folder, fault=self.fault)
                    self._answers[side.name] = begun(partial(side.do, job))

    def answer(self, side: str) -> Answer:
        """Wait for the recording of one side, which has begun, and return its answer. Raises MissingError."""
        return ended(self._answers[side])

    def answers(self) -> dict[str, Answer]:
        """Wait for the recordings, which have begun, and return the answers by side. Raises MissingError."""
        with self._lock:
            begun_so_far = dict(self._answers)
        return {name: ended(answer) for name, answer in begun_so_far.items()}

    def release(self, user: str) -> None:
        """Note that a case no longer needs this trace; delete the trace after its last user, unless it is kept."""
        with self._lock:
            self.users.discard(user)
            if not self.users and not self.kept:
                shutil.rmtree(self.folder, ignore_errors=True)


class Plan:
    """The traces of a comparison's cases; `own` and `baselines` hold each case's tasks by its name.

    Not every case has a baseline (see `why_no_baseline`). Traces are written below `folder`, and stay there if `kept`.
    """

    def __init__(self, cases: Sequence[Case], scratch: Path, keep: Path | None) -> None:
        self.folder, self.kept = keep or scratch, keep is not None
        self.own = {case.name: Task(case, self.folder / case.name, self.kept) for case in cases}
        trainings = {_training(case): task for case, task in zip(cases, self.own.values(), strict=True)}
        self.baselines: dict[str, Task] = {}
        for number, case in enumerate(cases):
            if not why_no_baseline(case):
                single = baseline(case)
                task = Task(single, scratch / "baselines" / str(number), False)
                self.baselines[case.name] = trainings.setdefault(_training(single), task)
        for name in self.own:
            for task in self.needs(name):
                task.users.add(name)

    def needs(self, name: str) -> list[Task]:
        """Return the tasks that a case needs: its own, and its baseline's, which begins first."""
        return [task for task in (self.own[name], self.baselines.get(name)) if task]

    def begin(self, case: Case, sides: Sequence[Worker]) -> tuple[Task, Task | None]:
        """Begin to record what a case needs, and return its own task and that of its baseline."""
        for task in reversed(self.needs(case.name)):
            task.begin(sides)
        return self.own[case.name], self.baselines.get(case.name)

    def release(self, case: Case) -> None:
        """Note that a case no longer needs its traces."""
        for task in self.needs(case.name):
            task.release(case.name)


def _training(case: Case) -> bytes:
    """Return a key that two cases share if they differ in name only."""
    return msgspec.json.encode(msgspec.structs.replace(case, name=""))
