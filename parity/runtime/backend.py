"""The parent's side of a backend: processes that run one job at a time and are always ended.

A job is run by a single process, or by a group of one process per rank. A group is started for the first job that
needs it and kept; besides the single process, at most one group of ranks is. If a rank fails, its whole group is ended.
All are forks of a process that has imported the framework, so that a new one costs little: each pair has its own, as
its code may change what holds for a whole process.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parity.config.devices import Devices, Kind
from parity.core.errors import BackendError, MissingError
from parity.runtime.child import DUMP, ENDING, Child, ForkServer, HungError, answers
from parity.runtime.environment import THREADS, environment, may_share, rank_variables
from parity.runtime.job import Answer, DoctorJob, Group, Work, owner

PACKAGES = {"torch": "torch_impl", "keras": "keras_impl"}
PATIENCE = 300.0  # seconds with neither an answer nor a recorded tensor, after which a job counts as hung
LONGER = "\n    if it is slow but not stuck, allow more time with --timeout=SECONDS"
START = 1800.0  # seconds at least for a process to import its framework: six at once, on a slow machine, take minutes


class Backend:
    """One backend, which runs jobs in child processes.

    `python`: the interpreter to use, "" for the running one. `folder`: for logs and temporary files.
    `kind`: the kind of its devices. `patience`: seconds without progress after which a job counts as hung.
    `threads`: the number of threads of each process. `variables`: further variables of their environment.
    """

    def __init__(
        self,
        name: str,
        python: str,
        folder: Path,
        kind: Kind = "cpu",
        patience: float = PATIENCE,
        threads: int = THREADS,
        servers: Mapping[bool, ForkServer] | None = None,
        variables: Mapping[str, str] = {},
    ) -> None:
        self.name = name
        self.python = python or sys.executable
        self.folder = folder
        self.kind = kind
        self.patience, self.start = patience, max(patience, START)
        self.threads, self.variables = threads, dict(variables)
        command = [self.python, "-m", PACKAGES[name]]
        self._servers = servers or {shares: ForkServer(name, command) for shares in (True, False)}
        self._groups: dict[Group, list[Child]] = {}
        self._owners: dict[Group, str] = {}  # the pair that has run its code in a group's processes, or ""
        self._closed = False
        self._starting = threading.Lock()

    def do(self, job: Work) -> Answer:
        """Run a job and return the answer; of failures only one raises, the others are answers "usage" and "error".

        Raises MissingError for a package that the interpreter does not have: all other jobs would fail alike.
        """
        group = job.group(self.name)
        if not self.serves(job):
            self._stop(group)
        self._owners[group] = owner(job)
        try:
            children = self.ready(group)
            for child in children:
                child.give(job)
            # A rank that fails leaves the other ranks waiting for it, so its group must be ended: an "error" is not
            # accepted there and raises. A single process can go on with its next job.
            accepted = ["done", "usage", "error"][: 3 if group.ranks == 1 else 2]
            received = list(answers(children, self.patience, *accepted, progress=job.progress))
            return max(received, key=lambda answer: (answer.status != "done", answer.seconds))
        except MissingError:
            self._stop(group)
            raise
        except (BackendError, OSError) as error:
            hint = ""
            if isinstance(error, HungError) and isinstance(job, DoctorJob):
                for child in self._groups[group]:
                    child.dump()  # it writes to its log where it hangs
                time.sleep(DUMP)
            elif isinstance(error, HungError):
                hint = LONGER
            self._stop(group)
            return Answer(status="error", message=f"{error}{hint}")

    def serves(self, job: Work) -> bool:
        """Return whether a job may be given to the processes as they are: no other pair has run its code there."""
        return self._owners.get(job.group(self.name), owner(job)) == owner(job)

    def ready(self, group: Group) -> list[Child]:
        """Return the group's processes, with their framework imported. Raises BackendError and MissingError."""
        if group not in self._groups:
            for running in list(self._groups):
                if running.devices != group.devices or min(running.ranks, group.ranks) > 1:
                    self._stop(running)  # later jobs are unlikely to need it
            shared = environment(self.folder, self.kind, self.threads, self.python) | self.variables
            shared["PARITY_DEVICES"] = str(Devices(self.kind, group.devices or group.ranks))
            shares = may_share(self.name, self.kind, group.ranks)
            shared["PARITY_SHARES"] = "yes" if shares else ""
            server = self._servers[shares]
            server.start(shared, self.folder / f"{self.name}.log", self.start)
            with self._starting:
                if self._closed:
                    raise BackendError(f"{self.name}: {ENDING}")
                children = self._groups[group] = []
                for rank, own in enumerate(rank_variables(self.name, group.ranks, self.folder)):
                    name = f"{self.name} rank {rank}" if group.ranks > 1 else self.name
                    log = self.folder / f"{name.replace(' ', '-')}.log"
                    children.append(server.fork(name, shared | own, log))
            list(answers(self._groups[group], self.start, "ready"))
        return self._groups[group]

    def another(self, label: str, python: str = "", variables: Mapping[str, str] = {}) -> "Backend":
        """Return a backend of the same settings, which has processes of its own.

        `label` tells its folder apart. With another interpreter, or further variables, it imports the framework anew;
        with none of the GPUs (CUDA_VISIBLE_DEVICES) it is on the CPU.
        """
        folder = self.folder / f"{self.name}-{label}"
        folder.mkdir()
        servers = None if python or variables else self._servers
        kind: Kind = "cpu" if variables.get("CUDA_VISIBLE_DEVICES") in ("", "-1") else self.kind
        given = kind, self.patience, self.threads, servers, {**self.variables, **variables}
        return Backend(self.name, python or self.python, folder, *given)

    def close(self) -> None:
        """End all processes, and refuse further jobs, which another thread may still want to run."""
        with self._starting:
            self._closed = True
        for group in list(self._groups):
            self._stop(group)
        for server in self._servers.values():
            server.stop()

    def _stop(self, group: Group) -> None:
        self._owners.pop(group, None)
        for child in self._groups.pop(group, []):
            child.stop()


@contextlib.contextmanager
def running(backends: Sequence[Backend]) -> Iterator[Sequence[Backend]]:
    """Close the backends when the block is left, by an exception or not."""
    try:
        yield backends
    finally:
        for backend in backends:
            backend.close()
