"""Compare a benchmark with an earlier one of the same machine: what has become slower.

A busier machine slows down all rows. So a row counts as slower only where it is so beside the other side's rows too,
by the ratios of times that were measured in the same rounds. A load does not slow down both sides quite alike: if the
other side's rows are slower themselves, it must be by more than they are.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from parity.bench.results import Benchmark, LaneTimes, Timed
from parity.bench.statistics import Interval, interval
from parity.core.errors import UsageError
from parity.core.wording import count

Key = tuple[str, int | None, str, str, str]


def read(path: str) -> Benchmark:
    """Return the benchmark that --save has written. Raises UsageError."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Benchmark)
    except OSError as error:
        raise UsageError(f"--against={path}: {error.strerror}; expected a file that --save has written") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"--against={path}: expected a file that --save has written: {error}") from None


def check(before: Benchmark, now: Benchmark, path: str) -> None:
    """Check that both are of the same machine. Raises UsageError."""
    if before.machine != now.machine:
        raise UsageError(
            f"--against={path}: of another machine ({_words(before)}), this one is {_words(now)}; times of two "
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
        others = [other for other in both if _are_beside(rows[key], key, rows[other], other)]
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


def _are_beside(row: LaneTimes, key: Key, other: LaneTimes, other_key: Key) -> bool:
    """Return whether two rows are the two sides of one training."""
    case, batch, devices, _, strategy = key
    return row.side != other.side and other_key == (case, batch, devices, other.name, strategy)


def _ratio(row: LaneTimes, other: LaneTimes) -> Interval:
    """Return the ratio of two rows' steps, of those within a round."""
    return interval([own / theirs for own, theirs in zip(row.samples, other.samples, strict=True)])


def _rows(benchmark: Benchmark) -> dict[Key, LaneTimes]:
    return {_key(timed, row): row for timed in benchmark.timed for row in timed.lanes if row.step}


def _key(timed: Timed, row: LaneTimes) -> Key:
    return timed.case, timed.batch, timed.devices, row.name, row.strategy


def _words(benchmark: Benchmark) -> str:
    machine = benchmark.machine
    return f"{machine.processor}, {count(machine.cores, 'core')}, {machine.system}"
