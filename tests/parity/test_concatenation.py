"""What stands between modules as a concatenation: the same parts in another order, or other parts."""

import numpy as np
import pytest

from parity.config import cases
from parity.diagnose import explain, forward
from parity.diagnose.formula import seen
from parity.diagnose.forward import CONCATENATION
from parity.diagnose.wiring import Junction

CASE = cases.resolve("simple_block/single")
draw = np.random.default_rng(0).normal
PARTS = {
    "activation/a": draw(size=(2, 3, 4)),
    "activation/b": draw(size=(2, 5, 4)),
    "activation/c": draw(size=(2, 5, 4)),
}
A, B, C = PARTS.values()


def joined(*arrays: np.ndarray, axis: int = 1, earlier: dict[str, np.ndarray] = PARTS) -> Junction:
    return Junction(earlier, CASE, {"input": seen(np.concatenate(arrays, axis))})


def changes(reference: Junction, candidate: Junction) -> list[tuple]:
    found = explain.compare(CONCATENATION, reference, candidate)
    assert found.known
    return [(change.cause, change.reference, change.candidate) for change in found.changes]


def test_another_order():
    order = [("concatenation.order", ("activation/a", "activation/b"), ("activation/b", "activation/a"))]
    assert changes(joined(A, B), joined(B, A)) == order


def test_another_part():
    wiring = [("module.wiring", ("activation/a", "activation/b"), ("activation/a", "activation/c"))]
    assert changes(joined(A, B), joined(A, C)) == wiring


def test_three_parts_and_one_that_stands_twice():
    assert changes(joined(A, B, A), joined(A, A, B))[0][0] == "concatenation.order"
    assert explain.compare(CONCATENATION, joined(A, B, A), joined(A, B, A)).same


def test_the_same_of_other_numbers_is_the_same():
    other = {name: array + 1 for name, array in PARTS.items()}
    assert explain.compare(CONCATENATION, joined(A, B), joined(*list(other.values())[:2], earlier=other)).same


def test_no_concatenation_and_an_unknown_part():
    assert list(forward.concatenations(joined(A, draw(size=(2, 5, 4))), 1)) == []
    found = explain.compare(CONCATENATION, joined(A, B), joined(A, draw(size=(2, 5, 4))))
    assert (found.same, found.changes, found.known) == (False, (), True)


@pytest.mark.parametrize(
    ("part", "whole", "axis"),
    [((2, 3), (2, 5), 1), ((2, 5), (2, 5), None), ((2, 3), (4, 5), None), ((2, 0), (2, 5), None), ((5,), (2, 5), None)],
)
def test_the_axis_of_a_part(part, whole, axis):
    assert forward._axis(part, whole) == axis
