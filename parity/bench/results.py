"""What a benchmark has found: the JSON report's structs."""

import os
import platform
from pathlib import Path

import msgspec

from parity.bench.statistics import Interval
from parity.doctor.evidence import Time


class LaneTimes(msgspec.Struct, kw_only=True):
    """The times of one side in one mode, in seconds and bytes.

    Attributes:
        name: what a reader calls it. `side` and `mode` are the parts of it.
        strategy: the strategy of its training.
        is_alone: whether it is the same training on a single device, with which the others are compared.
        why_not: why there are no times, or "".
        step: the median of a step's seconds, with an interval that holds the true one in 95 of 100 measurements.
        quartiles: the first and third quartile of a step's seconds.
        samples: the seconds of a step, one number for each round.
        per_second: samples of the data per second.
        ratio: its step to that of the first one, with the interval.
        peak: the most memory, of the GPU with the most, or else of the process with the most.
        start: from the start of the process until the framework is imported.
        first: from there until the end of the first step: building, tracing, compiling.
        parts: medians of the parts of a step, where they can be told apart.
        sent: bytes that a step sends between devices, by what they are.
        joules: energy of a step of the whole machine, where it tells it.
        speed_up: the step of `single` to its own; `efficiency` is that by device.
    """

    name: str
    side: str
    mode: str
    strategy: str = ""
    is_alone: bool = False
    why_not: str = ""
    step: Interval | None = None
    quartiles: tuple[float, float] | None = None
    samples: list[float] = []
    per_second: float | None = None
    ratio: Interval | None = None
    peak: int | None = None
    start: float | None = None
    first: float | None = None
    parts: Time | None = None
    sent: dict[str, int] = {}
    joules: float | None = None
    speed_up: float | None = None
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


class Benchmark(msgspec.Struct, kw_only=True):
    """The whole report."""

    machine: Machine
    command: str = ""
    environment: dict[str, dict[str, str]] = {}
    timed: list[Timed] = []
    slower: list[str] = []
    error: str = ""


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    return Machine(
        processor=_processor(), cores=len(os.sched_getaffinity(0)), system=f"{platform.system()} {platform.machine()}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
