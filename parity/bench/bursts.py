"""The child's side of a benchmark: a training that makes a burst of steps, writes how long it took, and waits."""

import itertools
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from parity.core.clock import Clock, Time
from parity.core.patches import applied
from parity.runtime.drive import Rank
from parity.runtime.job import BenchJob
from parity.runtime.serve import Following

BATCHES = 4  # that a training takes in turn; they are made before the clock starts
Context = AbstractContextManager[None]


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has measured: the seconds of all steps together, and the most memory that it ever held."""

    seconds: float
    peak: int  # bytes, of the GPU with the most, or else of the process
    parts: list[Time] = []  # the medians of the parts of a step


class Bursts:
    """Count the steps of a training; where a burst ends, write its time and wait until the next one is to begin.

    `job`: the first burst. `following`: returns the next one, when it is to begin. `wait`: returns when the devices
    have finished their work. `peak`: returns the most bytes that a GPU ever held, or 0 without one. `timed`, and for
    what is sent `communication`, time a step within their blocks. `model`: the one that is timed, set once it is built.
    """

    def __init__(
        self,
        job: BenchJob,
        rank: Rank,
        following: Following,
        wait: Callable[[], None],
        peak: Callable[[], int],
        timed: Callable[[Clock, Any], Context],
        communication: Callable[[Clock], Context],
    ) -> None:
        self._rank, self._following, self._wait, self._peak = rank, following, wait, peak
        self._timed, self._communication = timed, communication
        self.model: Any = None
        self._begin(job)

    def on_step(self) -> None:
        """Note that a step has ended; the first one of all takes as long as it takes to build and compile."""
        if self._job.parts:
            self._inside.__exit__(None, None, None)
        self._left -= 1
        if self._left:
            self._enter()
        else:
            self._end()

    def _begin(self, job: BenchJob) -> None:
        self._job, self._left = job, job.steps
        self._clock = Clock(self._wait)
        self._enter()
        self._start = time.perf_counter()

    def _end(self) -> None:
        self._wait()
        seconds = time.perf_counter() - self._start
        peak = self._peak() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # KiB on Linux
        burst = Burst(seconds=seconds, peak=peak, parts=self._clock.result(""))
        path = place(self._job, self._rank.number)
        path.with_suffix(".new").write_bytes(msgspec.json.encode(burst))
        path.with_suffix(".new").rename(path)
        self._begin(self._following())

    def _enter(self) -> None:
        if self._job.parts:
            self._inside = applied([self._communication(self._clock), self._timed(self._clock, self.model)])
            self._inside.__enter__()


def place(job: BenchJob, rank: int) -> Path:
    """Return the file in which a rank writes what it has measured of a burst."""
    return Path(job.folder) / f"{job.number}-{rank}.json"


def endless(batches: Iterator[Any]) -> Iterator[Any]:
    """Make all batches, and return them over and over."""
    return itertools.cycle(list(batches))
