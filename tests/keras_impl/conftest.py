"""Runs of cases in this process, on the four logical devices that tests/sides.py gives it."""

import itertools
from collections.abc import Callable

import pytest

from parity.config import cases
from parity.runtime import drive
from parity.runtime.job import Job
from parity.trace.manifest import Trace

Record = Callable[..., Trace]


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """`record("simple_block", strategy="ddp", ...)`: the trace of a float64 run; kept, since tests share some."""
    from keras_impl.record import run as side  # not above: workers for other tests read this file too

    numbers, kept = itertools.count(), {}

    def recorded(name: str, fault: str = "", **changes: object) -> Trace:
        asked = repr((name, fault, sorted(changes.items())))
        if asked not in kept:
            folder = tmp_path_factory.mktemp(f"trace{next(numbers)}")
            case = cases.resolve(f"{name}/single", changes)
            drive.record(Job(case=case, runs=["high"], folder=str(folder), fault=fault), side)
            kept[asked] = Trace(folder)
        return kept[asked]

    return recorded
