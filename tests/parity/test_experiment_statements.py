"""The order of a function's statements is changed in its code, and put back."""

import contextlib
from collections.abc import Callable

from parity.diagnose.experiment import statements
from parity.diagnose.experiment.executed import Executed

LOG: list[str] = []


def straight(x: float) -> float:
    y = x + 1
    z = y if x > 100 else 2 * y  # has a jump: it stays where it is
    z = z * 3
    z = z - y
    z = z / 7
    return z  # noqa: RET504 - the last statement is moved as well


def within_blocks(x: float) -> float:
    total = 0.0
    for step in range(2):
        with contextlib.suppress(ValueError):
            x = x + step
            total += x
            x = 2 * x
    return total


def of_calls(x: float) -> float:
    LOG.append("first")
    unrelated = 5
    LOG.append("second")
    return x + unrelated


def results(function: Callable[[float], float]) -> dict[str, float]:
    run = Executed(function, __file__, "", True)
    found = {}
    for knob in statements.moved(run):
        (to,) = knob.words
        with knob.changed(to):
            found[to] = function(1.0)
    return found


def test_statements_are_moved_over_those_that_they_share_a_variable_with() -> None:
    before = straight(1.0)
    assert results(straight) == {
        "`z = z * 3` behind `z = z - y`": (4 - 2) * 3 / 7,
        "`z = z * 3` behind `z = z / 7`": (4 - 2) / 7 * 3,
        "`z = z / 7` before `z = z * 3`": 4 / 7 * 3 - 2,
        "`z = z - y` behind `z = z / 7`": 4 * 3 / 7 - 2,
    }
    assert straight(1.0) == before


def test_a_block_is_not_left() -> None:
    assert results(within_blocks) == {
        "`x = x + step` behind `total += x`": 1 + 2,
        "`x = x + step` behind `x = 2 * x`": 1 + 2,
        "`x = 2 * x` before `x = x + step`": 2 + 5,
        "`total += x` behind `x = 2 * x`": 2 + 6,
    }


def test_calls_whose_results_nobody_takes_are_exchanged_as_well() -> None:
    LOG.clear()
    found = results(of_calls)
    assert list(found) == [
        '`LOG.append("first")` behind `LOG.append("second")`',
        '`LOG.append("second")` before `LOG.append("first")`',
    ]
    assert LOG == ["second", "first", "second", "first"]
