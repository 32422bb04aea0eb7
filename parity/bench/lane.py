"""One side's training in one mode, in processes of its own, which make a burst of steps when they are told to."""

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from parity.bench.bursts import Burst, place
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.doctor.evidence import Time
from parity.runtime.backend import Backend
from parity.runtime.job import BenchJob, Mode
from parity.trace.mapping import PairContext

NAMES = {
    ("torch", "eager"): "torch eager",
    ("torch", "compile"): "torch.compile",
    ("keras", "eager"): "keras eager",
    ("keras", "graph"): "keras tf.function",
    ("keras", "xla"): "keras XLA",
}
USUAL: Mapping[str, Mode] = {"torch": "eager", "keras": "graph"}  # how users of each framework commonly train


class Way(NamedTuple):
    """A side and the mode in which it carries out its steps."""

    side: str
    mode: Mode

    @property
    def name(self) -> str:
        """Return what a reader calls it."""
        return NAMES[self.side, self.mode]


class Lane:
    """A training that runs on its own in turn with others. It ends its processes when its block is left.

    Args:
        way: which side, and how.
        case: what is trained.
        backend: processes that are not used for anything else.
        pair: what is known of a user's pair.
    """

    def __init__(self, way: Way, case: Case, backend: Backend, pair: PairContext | None = None) -> None:
        self.way, self.case = way, case
        self.start = self.first = 0.0
        self.peak = 0
        self.parts: list[Time] = []
        self._backend = backend
        self._ranks = case.distribution.processes(way.side)
        folder = backend.folder / "bursts"
        folder.mkdir(parents=True)
        self._job = BenchJob(case=case, folder=str(folder.absolute()), mode=way.mode, pair=pair)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._backend.close()

    def begin(self) -> None:
        """Start the processes, build the model and make the first step.

        Afterwards `start` holds the seconds until the framework was imported, and `first` those from there to the end
        of the first step, with building, tracing and compiling. Raises UsageError and BackendError.
        """
        start = time.perf_counter()
        self._backend.ready(self._job.group(self.way.side))
        self.start = time.perf_counter() - start
        started = time.perf_counter()
        self.burst(1)
        self.first = time.perf_counter() - started

    def burst(self, steps: int, parts: bool = False) -> float:
        """Make so many steps, and return how many seconds the slowest rank has taken. Raises UsageError, BackendError.

        With `parts` the parts of each step are timed as well, into `parts`.
        """
        job = msgspec.structs.replace(self._job, steps=steps, parts=parts)
        answer = self._backend.do(job)
        if answer.status == "usage":
            raise UsageError(answer.message)
        if answer.status != "done":
            raise BackendError(answer.message)
        self._job = msgspec.structs.replace(self._job, number=job.number + 1)
        bursts = [_read(place(job, rank)) for rank in range(self._ranks)]
        self.peak = max(self.peak, *(burst.peak for burst in bursts))
        slowest = max(bursts, key=lambda burst: burst.seconds)
        self.parts = slowest.parts or self.parts
        return slowest.seconds


def _read(path: Path) -> Burst:
    return msgspec.json.decode(path.read_bytes(), type=Burst)
