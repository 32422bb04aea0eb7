"""How causes are found: settings that reproduce what was seen, on evidence of 20 bits and no less."""

from collections.abc import Mapping
from typing import NamedTuple, Never

import numpy as np
import pytest

from parity.core.arrays import Array
from parity.diagnose import explain
from parity.diagnose.formula import Formula, NotApplicable, Seen, Trait, choices, seen


class Line(NamedTuple):
    """y = slope x + offset, or its absolute value."""

    name: str
    x: Array
    seen: Mapping[str, Seen]


def predict(line: Line, slope: float, form: str) -> dict[str, Array]:
    y = slope * line.x + 1
    return {"y": np.abs(y) if form == "absolute" else y}


def slopes(line: Line, settings: dict) -> list[float]:
    """Solved for; the sign is not known where the absolute value was taken."""
    place = np.argmax(np.abs(line.x))
    return [(line.seen["y"].value[place] - 1) / line.x[place], 2.0]


FORMS = choices("plain", "absolute")
FORMULA = Formula(predict, (Trait("form", "line.form", FORMS), Trait("slope", "line.slope", slopes)))
X = np.random.default_rng(0).normal(size=100)


def line(slope: float, form: str = "plain", noise: float = 0.0) -> Line:
    y = slope * X + 1
    y = np.abs(y) if form == "absolute" else y
    return Line("line", X, {"y": seen(y + noise * np.random.default_rng(1).normal(size=100))})


def changes(reference: Line, candidate: Line) -> dict[str, tuple]:
    found = explain.compare(FORMULA, reference, candidate)
    return {change.cause: (change.reference, change.candidate) for change in found.changes}


def test_without_twenty_bits_nothing_is_named():
    found = explain.compare(FORMULA, line(2.0), line(0.3, noise=2.0**-40))
    assert (found.same, found.changes, found.known) == (False, (), True)
    assert found.tried == ("line.form", "line.slope")


def test_nothing_is_named_where_the_formula_does_not_give_the_reference():
    found = explain.compare(FORMULA, line(2.0, noise=1e-3), line(0.3))
    assert (found.same, found.changes, found.known) == (False, (), False)


def test_a_small_difference_needs_twenty_bits_too():
    """2^-30 of the value leaves 23 bits of float64 to tell it by, 2^-36 only 17; 2^-50 is the same."""
    assert changes(line(2.0), line(2.0 * (1 + 2.0**-30))) == {"line.slope": (2.0, 2.0 * (1 + 2.0**-30))}
    assert explain.compare(FORMULA, line(2.0), line(2.0 * (1 + 2.0**-36))).changes == ()
    assert explain.compare(FORMULA, line(2.0), line(2.0 * (1 + 2.0**-50))).same


def unfit(*_: object, **__: object) -> Never:
    raise NotApplicable("it does not fit")


SLOPE_UNFIT = Formula(predict, (FORMULA.traits[0], Trait("slope", "line.slope", unfit)))


@pytest.mark.parametrize("formula", [Formula(unfit, FORMULA.traits), FORMULA._replace(check=unfit), SLOPE_UNFIT])
def test_a_formula_that_does_not_fit_is_skipped(formula: Formula) -> None:
    assert explain.explain(formula, line(2.0)) is None
    assert not explain.compare(formula, line(2.0), line(0.3)).known
