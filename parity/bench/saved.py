"""Compare a benchmark with an earlier one of the same machine: what has become slower."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from parity.bench.results import Benchmark, LaneTimes, Timed
from parity.core.errors import UsageError

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
    """Yield a line for each row that is slower than before by more than both intervals allow.

    Raises UsageError where no row is in both.
    """
    earlier, rows = _rows(before), _rows(now)
    if not (both := rows.keys() & earlier.keys()):
        raise UsageError("--against: none of its rows is timed now; choose the same cases, batches, devices and modes")
    for key in sorted(both, key=str):
        old, new = earlier[key].step, rows[key].step
        if old and new and new.low > old.high:
            case, batch, devices, name, strategy = key
            of = f"{case}, " + (f"batch {batch}, " if batch else "") + f"{devices}, {name} ({strategy})"
            yield (
                f"{of}: {new.middle * 1e3:.2f} ms a step, {new.middle / old.middle:.2f} times the "
                f"{old.middle * 1e3:.2f} ms of before; the intervals are apart"
            )


def _rows(benchmark: Benchmark) -> dict[Key, LaneTimes]:
    return {_key(timed, row): row for timed in benchmark.timed for row in timed.lanes if row.step}


def _key(timed: Timed, row: LaneTimes) -> Key:
    return timed.case, timed.batch, timed.devices, row.name, row.strategy


def _words(benchmark: Benchmark) -> str:
    machine = benchmark.machine
    return f"{machine.processor}, {machine.cores} cores, {machine.system}"
