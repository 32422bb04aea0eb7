"""What slowness asks of tests: cases that the default run leaves out, and patience with slow machines."""

import functools
import subprocess
import sys
import time
from collections.abc import Iterable
from statistics import fmean
from typing import Any

import pytest

PARAM = type(pytest.param())
# Seconds for which a test waits for a process: machines differ in speed by a factor of fifty.
WAIT = 900.0
# A program that Python runs within so many seconds on a machine of two cores, of the year 2025.
PROGRAM, USUAL = "sum(range(1_000_000))", 0.06


def sampled(cases: Iterable[Any], *kept: str) -> list[Any]:
    """Return the cases as params with their ids, marked slow unless the id is among `kept`.

    A case is a param with an id, or what is its own id as text.
    """
    params = [case if isinstance(case, PARAM) else pytest.param(case, id=str(case)) for case in cases]
    assert {each.id for each in params}.issuperset(kept), kept
    return [each if each.id in kept else each._replace(marks=[*each.marks, pytest.mark.slow]) for each in params]


def is_within(took: float, seconds: float) -> bool:
    """Whether something took less than that, or, where this machine is slower than usual, than as many times that."""
    return took < seconds or took < seconds * fmean(_starts(40)) / USUAL


@functools.cache
def slowness() -> float:
    """How many times as long as usual Python takes to start, the slowest of ten, as a machine may halt; 1 up to 4."""
    slowest = max(_starts(10)) / USUAL
    return slowest if slowest > 4 else 1.0


def _starts(runs: int) -> list[float]:
    """Return how many seconds each run of the program takes."""
    took = []
    for _ in range(runs):
        start = time.monotonic()
        subprocess.run([sys.executable, "-I", "-c", PROGRAM], check=True)
        took.append(time.monotonic() - start)
    return took
