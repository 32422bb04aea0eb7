"""The parent's side of a backend: its processes, fed one job at a time, ended whatever happens.

A job is run by one process, or by a group of one process per rank. A group is started at the first
job that needs one of its size and kept for those that follow: beside the one process at most one
group of ranks. One rank that fails ends its group. A pair whose code changes global settings of its process, and
leaves them so, has it to itself: what runs after that pair is given another process.
"""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from parity.config.devices import Devices, Kind
from parity.core.errors import BackendError, MissingError
from parity.core.threads import WAKE
from parity.runtime.child import DUMP, Child, HungError, answers
from parity.runtime.environment import THREADS, environment
from parity.runtime.job import Answer, DoctorJob, Group, Work
from parity.runtime.ranks import variables
from parity.runtime.settings import owner

PACKAGES = {"torch": "torch_impl", "keras": "keras_impl"}
PATIENCE = 300.0  # seconds without an answer, and without a tensor recorded, after which a job counts as hung
LONGER = "\n    if it is only slow: --timeout=SECONDS gives it longer"
START = 120.0  # seconds that processes have to import their framework, on however busy a machine


class Result(NamedTuple):
    """A backend's answer to one of its jobs, by number."""

    backend: str
    job: int
    answer: Answer


class Backend:
    """Answers jobs. `kind`: of its devices; `patience`: seconds until a job counts as hung; `threads`: per process."""

    def __init__(
        self,
        name: str,
        python: str,
        folder: Path,
        kind: Kind = "cpu",
        patience: float = PATIENCE,
        threads: int = THREADS,
    ) -> None:
        self.name = name
        self.python = python or sys.executable
        self.folder = folder
        self.kind = kind
        self.patience, self.start = patience, max(patience, START)
        self.threads = threads
        self.command = [self.python, "-m", PACKAGES[name]]
        self._groups: dict[Group, list[Child]] = {}
        self._left: dict[Group, str] = {}  # the pair that has changed the global settings of a group's processes
        self._closed = False
        self._starting = threading.Lock()

    def do(self, job: Work) -> Answer:
        """Run one job; an answer of status error stands for every way to fail but one.

        Raises MissingError for a package that the interpreter does not have: all other jobs would fail alike.
        """
        group = job.group(self.name)
        if self._left.get(group, owner(job)) != owner(job):
            self._stop(group)
        try:
            children = self._ready(group)
            for child in children:
                child.give(job)
            # A rank that failed leaves the others waiting: its group is ended. A single process goes on.
            accepted = ["done", "usage", "error"][: 3 if group.ranks == 1 else 2]
            said = list(answers(children, self.patience, *accepted, progress=job.progress))
            if any(answer.settings for answer in said):
                self._left[group] = owner(job)
            return max(said, key=lambda answer: (answer.status != "done", answer.seconds))
        except MissingError:
            self._stop(group)
            raise
        except (BackendError, OSError) as error:
            if isinstance(error, HungError) and isinstance(job, DoctorJob):
                self._ask_where(group)
            self._stop(group)
            hint = LONGER if isinstance(error, HungError) and not isinstance(job, DoctorJob) else ""
            return Answer(status="error", message=f"{error}{hint}")

    def close(self) -> None:
        """End all processes for good: a thread that still feeds jobs does not start others."""
        with self._starting:
            self._closed = True
        for group in list(self._groups):
            self._stop(group)

    def _ready(self, group: Group) -> list[Child]:
        """The group's processes, started and with their framework imported. Raises BackendError, MissingError."""
        if group not in self._groups:
            for other in list(self._groups):
                if other.devices != group.devices or min(other.ranks, group.ranks) > 1:
                    self._stop(other)  # no later job is likely to want it
            with self._starting:
                if self._closed:
                    raise BackendError(f"{self.name}: is closed")
                self._spawn(group)
            list(answers(self._groups[group], self.start, "ready"))
        return self._groups[group]

    def _spawn(self, group: Group) -> None:
        children = self._groups[group] = []
        shared = environment(self.folder, self.kind, self.threads, self.python)
        shared["PARITY_DEVICES"] = str(Devices(self.kind, group.devices or group.ranks))
        for rank, own in enumerate(variables(self.name, group.ranks, self.folder)):
            name = f"{self.name} rank {rank}" if group.ranks > 1 else self.name
            log = self.folder / f"{name.replace(' ', '-')}.log"
            children.append(Child(name, self.name, self.command, shared | own, log))

    def _ask_where(self, group: Group) -> None:
        for child in self._groups[group]:
            child.dump()
        time.sleep(DUMP)

    def _stop(self, group: Group) -> None:
        self._left.pop(group, None)
        for child in self._groups.pop(group, []):
            child.stop()


@contextlib.contextmanager
def running(backends: Sequence[Backend]) -> Iterator[Sequence[Backend]]:
    """The backends are ended when the block is left, however it is left."""
    try:
        yield backends
    finally:
        for backend in backends:
            backend.close()


def feed(backends: Mapping[Backend, Sequence[Work]]) -> Iterator[Result]:
    """Give each backend its jobs in order, all backends at the same time; results as they come.

    Raises MissingError as soon as one backend does.
    """
    results: queue.SimpleQueue[Result | MissingError] = queue.SimpleQueue()

    def work(backend: Backend, jobs: Sequence[Work]) -> None:
        for number, job in enumerate(jobs):
            try:
                answer = backend.do(job)
            except MissingError as error:
                results.put(error)
                return
            except Exception as error:  # a thread that died would leave the reader waiting
                answer = Answer(status="error", message=f"{backend.name}: {type(error).__name__}: {error}")
            results.put(Result(backend.name, number, answer))

    for backend, jobs in backends.items():
        threading.Thread(target=work, args=(backend, jobs), daemon=True).start()
    for _ in range(sum(map(len, backends.values()))):
        yield _taken(results)


def _taken(results: "queue.SimpleQueue[Result | MissingError]") -> Result:
    """Wait for the next result, waking now and then as threads.ended does. Raises the error that comes instead."""
    while True:
        with contextlib.suppress(queue.Empty):
            result = results.get(timeout=WAKE)
            if isinstance(result, MissingError):
                raise result
            return result
