"""Trainings in processes of their own that take turns, a burst of steps each, until the ratio of their times is known.

The energy of a step is measured too, where the machine tells it: Linux's powercap (RAPL), and NVML.

In its process such a training (`Bursts`) makes a burst of steps, writes how long it took, and waits for the next one.
"""

import contextlib
import functools
import importlib
import itertools
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from parity.bench.results import Interval, interval
from parity.config.schema import Case
from parity.core.clock import Clock, Time
from parity.core.patches import applied
from parity.runtime.backend import Backend
from parity.runtime.drive import Rank
from parity.runtime.job import BenchJob, Mode
from parity.runtime.serve import Following
from parity.trace.mapping import PairContext

NAMES = {
    ("torch", "eager"): "torch eager",
    ("torch", "compile"): "torch.compile",
    ("keras", "eager"): "keras eager",
    ("keras", "graph"): "keras tf.function",
    ("keras", "xla"): "keras XLA",
}
USUAL: Mapping[str, Mode] = {"torch": "eager", "keras": "graph"}  # how users of each framework commonly train
BURST = 0.2  # seconds of a burst at least: a step alone may be shorter than what its start and its end cost
WARM = 3  # bursts that do not count: memory, caches and clocks settle
ROUNDS = 6  # at least: no interval of fewer samples holds the true median in 95 of 100 measurements
ENOUGH = 0.05  # the width of an interval, as a part of the ratio
ZONES = Path("/sys/class/powercap")
BATCHES = 4  # that a training takes in turn; they are made before the clock starts
Context = contextlib.AbstractContextManager[None]


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


class Lane(contextlib.AbstractContextManager["Lane"]):
    """A training that runs on its own in turn with others, and ends its processes when its block is left.

    `mode`: how it carries out its steps. `backend`: processes that are not used for anything else. `pair`: what is
    known of a user's pair.
    """

    def __init__(self, mode: Mode, case: Case, backend: Backend, pair: PairContext | None = None) -> None:
        self.start = self.first = 0.0
        self.peak = 0
        self.parts: list[Time] = []
        self.samples: list[float] = []  # the seconds of one step, one number for each round
        self.joules: list[float] = []  # of one step, for each round; none where the machine does not tell them
        self._backend = backend
        self._ranks = case.distribution.processes(backend.name)
        folder = backend.folder / "bursts"
        folder.mkdir(parents=True)
        self._job = BenchJob(case=case, folder=str(folder.absolute()), mode=mode, pair=pair)

    def __exit__(self, *_: object) -> None:
        self._backend.close()

    def begin(self) -> None:
        """Start the processes, build the model and make the first step.

        Afterwards `start` holds the seconds until the framework was imported, and `first` those from there to the end
        of the first step, with building, tracing and compiling. Raises UsageError and BackendError.
        """
        begun = time.perf_counter()
        self._backend.ready(self._job.group(self._backend.name))
        started = time.perf_counter()
        self.burst(1)
        self.start, self.first = started - begun, time.perf_counter() - started

    def burst(self, steps: int, parts: bool = False) -> float:
        """Make so many steps, and return how many seconds the slowest rank has taken. Raises UsageError, BackendError.

        With `parts` the parts of each step are timed as well, into `parts`.
        """
        job = msgspec.structs.replace(self._job, steps=steps, parts=parts)
        self._backend.do(job).check()
        self._job = msgspec.structs.replace(self._job, number=job.number + 1)
        files = [place(job, rank).read_bytes() for rank in range(self._ranks)]
        bursts = [msgspec.json.decode(file, type=Burst) for file in files]
        self.peak = max(self.peak, *(burst.peak for burst in bursts))
        slowest = max(bursts, key=lambda burst: burst.seconds)
        self.parts = slowest.parts or self.parts
        return slowest.seconds


def measured(lanes: Sequence[Lane], seconds: float) -> list[Interval]:
    """Measure all lanes, which have begun, until the ratios of their times to the first one's are known to 5%.

    Returns these ratios. It ends after `seconds` at the latest, but not before six rounds. In a round each lane makes a
    burst, and each comes first as often as the others, so that whatever else the machine does slows down all alike: the
    ratios are those within a round. Raises UsageError and BackendError.
    """
    steps = {lane: _steps(lane) for lane in lanes}
    order, deadline = list(lanes), time.monotonic() + seconds
    while True:
        for lane in order:
            before = read_energy()
            lane.samples.append(lane.burst(steps[lane]) / steps[lane])
            if (taken := energy_between(before, read_energy())) is not None:
                lane.joules.append(taken / steps[lane])
        order.append(order.pop(0))
        pairs = (zip(lane.samples, lanes[0].samples, strict=True) for lane in lanes)
        ratios = [interval([own / first for own, first in rounds]) for rounds in pairs]
        known = all(ratio.width < ENOUGH for ratio in ratios)
        if len(lanes[0].samples) >= ROUNDS and (known or time.monotonic() > deadline):
            return ratios


def _steps(lane: Lane) -> int:
    """Warm a lane up, and return how many of its steps a burst has."""
    taken = lane.burst(1)
    for _ in range(WARM):
        steps = max(round(BURST / taken), 1)
        taken = lane.burst(steps) / steps
    return max(round(BURST / taken), 1)


def read_energy(zones: Path = ZONES) -> dict[str, float] | None:
    """Return what the counter of each processor and GPU stands at, in joules; None where none can be read.

    docs.kernel.org/power/powercap/powercap.html: energy_uj counts microjoules, in intel-rapl:N for a whole processor.
    """
    read = {f"GPU {number}": counter() / 1e3 for number, counter in enumerate(_gpus())}
    with contextlib.suppress(OSError):  # only the superuser may read it on many machines
        read |= {zone.name: int((zone / "energy_uj").read_text()) / 1e6 for zone in zones.glob("intel-rapl:?")}
    return read or None


def energy_between(before: dict[str, float] | None, after: dict[str, float] | None) -> float | None:
    """Return the joules between two readings, or None where they are not known, or a counter has started anew."""
    if before is None or after is None or any(after[zone] < joules for zone, joules in before.items()):
        return None
    return sum(after.values()) - sum(before.values())


@functools.cache
def _gpus() -> Sequence[Callable[[], int]]:
    """Return a function for each GPU that reads its millijoules; none without nvidia-ml-py, a driver, or counters.

    docs.nvidia.com/deploy/nvml-api, nvmlDeviceGetTotalEnergyConsumption: from Volta on.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return []
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        counters = [functools.partial(nvml.nvmlDeviceGetTotalEnergyConsumption, handle) for handle in handles]
        for counter in counters:
            counter()  # fails now rather than in the midst of a measurement
    except nvml.NVMLError:
        return []
    return counters
