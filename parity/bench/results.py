"""What a benchmark has found: the JSON report's structs, its statistics, and what is slower than in an earlier one.

Of repeated measurements: the median, its spread, and how far a ratio of two medians can be trusted. A busier machine
slows down all rows. So a row counts as slower only where it is so beside the other side's rows too, by the ratios of
times that were measured in the same rounds. A load does not slow down both sides quite alike: if the other side's rows
are slower themselves, it must be by more than they are.
"""

import contextlib
import math
import platform
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from parity.core.clock import Time
from parity.core.errors import UsageError
from parity.core.wording import count
from parity.runtime.resources import processors

CONFIDENCE = 0.95
Key = tuple[str, int | None, str, str, str]


class Interval(NamedTuple):
    """An interval that holds the true median in 95 of 100 measurements, around the measured one."""

    low: float
    middle: float
    high: float

    @property
    def width(self) -> float:
        """Return its width, as a part of the middle."""
        return (self.high - self.low) / self.middle


def interval(samples: Sequence[float]) -> Interval:
    """Return the median of the samples with its confidence interval, from their order alone.

    Of n samples the k smallest lie below the true median as often as k of n throws of a coin show heads; no assumption
    is made about their distribution (W. J. Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2). It
    takes six samples at least; that of fewer reaches from the smallest to the largest, and is less sure.
    """
    ordered, count = sorted(samples), len(samples)
    below, tail = 0, 0.0
    while below < count // 2 and (tail := tail + math.comb(count, below) / 2**count) <= (1 - CONFIDENCE) / 2:
        below += 1
    first = max(below - 1, 0)
    return Interval(ordered[first], statistics.median(ordered), ordered[count - 1 - first])


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    first, third = np.quantile(samples, (0.25, 0.75)).tolist()
    return first, third


class LaneTimes(msgspec.Struct, kw_only=True):
    """The times of one side in one mode, in seconds and bytes."""

    name: str  # what a reader calls it. `side` and `mode` are the parts of it
    side: str
    mode: str
    strategy: str = ""  # the strategy of its training
    is_alone: bool = False  # whether it is the same training on a single device, with which the others are compared
    why_not: str = ""  # why there are no times, or ""
    # The median of a step's seconds, with an interval that holds the true one in 95 of 100 measurements.
    step: Interval | None = None
    quartiles: tuple[float, float] | None = None  # the first and third quartile of a step's seconds
    samples: list[float] = []  # the seconds of a step, one number for each round
    per_second: float | None = None  # samples of the data per second
    ratio: Interval | None = None  # its step to that of the first one, with the interval
    peak: int | None = None  # the most memory, of the GPU with the most, or else of the process with the most
    start: float | None = None  # from the start of the process until the framework is imported
    first: float | None = None  # from there until the end of the first step: building, tracing, compiling
    parts: Time | None = None  # medians of the parts of a step, where they can be told apart
    sent: dict[str, int] = {}  # bytes that a step sends between devices, by what they are
    joules: float | None = None  # energy of a step of the whole machine, where it tells it
    speed_up: float | None = None  # the step of `single` to its own; `efficiency` is that by device
    efficiency: float | None = None


class Timed(msgspec.Struct, kw_only=True):
    """One case or pair, with one batch and one number of devices; `reason`: why it is not timed, or ""."""

    case: str
    batch: int | None
    devices: str
    verdict: str
    reason: str = ""
    lanes: list[LaneTimes] = []


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that the times are of; those of another one are not compared."""

    processor: str
    cores: int
    system: str

    def __str__(self) -> str:
        return f"{self.processor}, {count(self.cores, 'core')}, {self.system}"


class Benchmark(msgspec.Struct, kw_only=True):
    machine: Machine
    command: str = ""
    environment: dict[str, dict[str, str]] = {}
    timed: list[Timed] = []
    slower: list[str] = []
    error: str = ""


def this_machine() -> Machine:
    system, processor = f"{platform.system()} {platform.machine()}", platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    return Machine(processor=processor, cores=processors(), system=system)


def read_saved(path: str) -> Benchmark:
    """Return the benchmark that --save has written. Raises UsageError."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Benchmark)
    except OSError as error:
        raise UsageError(f"--against={path}: {error.strerror}; expected a file that --save has written") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"--against={path}: expected a file that --save has written: {error}") from None


def check_machine(before: Benchmark, now: Benchmark, path: str) -> None:
    """Check that both are of the same machine. Raises UsageError."""
    if before.machine != now.machine:
        raise UsageError(
            f"--against={path}: of another machine ({before.machine}), this one is {now.machine}; times of two "
            "machines are not compared"
        )


def slower(before: Benchmark, now: Benchmark) -> Iterator[str]:
    """Yield a line for each row that is slower than before by more than the intervals allow, beside the other side too.

    Raises UsageError where no row is in both.
    """
    earlier, rows = _rows(before), _rows(now)
    if not (both := sorted(rows.keys() & earlier.keys(), key=str)):
        raise UsageError("--against: none of its rows is timed now; choose the same cases, batches, devices and modes")
    grown = {key: _growth(earlier[key].step, rows[key].step) for key in both}
    for key in both:
        of_training = [other for other in both if (*other[:3], other[4]) == (*key[:3], key[4])]
        others = [other for other in of_training if rows[other].side != rows[key].side]
        beside = [_growth(*(_ratio(each[key], each[other]) for each in (earlier, rows))) for other in others]
        busier = min((grown[other] for other in others), default=1.0)
        if grown[key] > 1.0 and all(growth > busier for growth in beside):
            yield _line(key, earlier[key], rows[key], dict(zip(others, beside, strict=True)))


def _growth(first: Interval | None, later: Interval | None) -> float:
    """Return how many times as large the later value is; 1 if the intervals do not show that it is larger."""
    return later.middle / first.middle if first and later and later.low > first.high else 1.0


def _line(key: Key, old: LaneTimes, new: LaneTimes, beside: dict[Key, float]) -> str:
    assert old.step and new.step  # a row without is in no benchmark's rows
    case, batch, devices, name, strategy = key
    of = f"{case}, " + (f"batch {batch}, " if batch else "") + f"{devices}, {name} ({strategy})"
    factors = [f"{growth:.2f} times beside {other[3]}" for other, growth in beside.items()]
    times = f"{new.step.middle / old.step.middle:.2f} times the {old.step.middle * 1e3:.2f} ms of before"
    return f"{of}: {new.step.middle * 1e3:.2f} ms a step, {', '.join([times, *factors])}; the intervals are apart"


def _ratio(row: LaneTimes, other: LaneTimes) -> Interval:
    """Return the ratio of two rows' steps, of those within a round."""
    return interval([own / theirs for own, theirs in zip(row.samples, other.samples, strict=True)])


def _rows(benchmark: Benchmark) -> dict[Key, LaneTimes]:
    return {
        (timed.case, timed.batch, timed.devices, row.name, row.strategy): row
        for timed in benchmark.timed
        for row in timed.lanes
        if row.step
    }
