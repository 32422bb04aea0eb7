"""What stands between modules: sums, activation functions, factors and positions that one side has otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from parity.config import cases
from parity.diagnose import explain, wiring
from parity.diagnose.formula import seen
from parity.diagnose.layers.activations import FUNCTIONS

CASE = cases.resolve("transformer/single")
SHAPE = (5, 3, 8)  # words, samples, features
draw = np.random.default_rng(0).normal
EARLIER = {
    name: draw(size=SHAPE) for name in ("embedding", "layer.attention", "layer.dropout", "layer.norm", "layer.linear")
}
X, ATTENDED, NORMED = EARLIER["embedding"], EARLIER["layer.dropout"], EARLIER["layer.norm"]
POSITIONS = draw(size=(5, 1, 8))


def junction(value: np.ndarray, earlier: dict[str, np.ndarray] = EARLIER) -> wiring.Junction:
    return wiring.Junction(earlier, CASE, {"input": seen(value)})


def causes_of(reference: np.ndarray, candidate: np.ndarray, earlier: dict[str, np.ndarray] = EARLIER) -> list[str]:
    found = explain.compare(wiring.FORMULA, junction(reference, earlier), junction(candidate, earlier))
    return [change.cause for change in found.changes]


@pytest.mark.parametrize(
    ("reference", "candidate", "cause"),
    [
        (X + ATTENDED, ATTENDED, "module.wiring"),
        (X + ATTENDED, X + EARLIER["layer.attention"], "module.wiring"),
        (X, NORMED, "transformer.norm_order"),
        (NORMED + ATTENDED, ATTENDED, "module.wiring"),  # a sum of fewer terms, though one of a norm is missing
        (X, X * 4.0, "module.scale"),
        (FUNCTIONS["relu"](EARLIER["layer.linear"]), FUNCTIONS["gelu"](EARLIER["layer.linear"]), "activation.kind"),
        (X, X + POSITIONS, "transformer.position"),
    ],
)
def test_it_is_named_whichever_side_has_it(reference, candidate, cause):
    assert causes_of(reference, candidate) == [cause]
    assert causes_of(candidate, reference) == [cause]
    assert causes_of(reference, reference) == causes_of(candidate, candidate) == []


def test_a_sum_of_one_of_the_latest_with_any_is_found_among_many():
    many = {f"layers.{number}": draw(size=SHAPE) for number in range(3 * wiring.LATEST)}
    first, last = many["layers.0"], many[f"layers.{3 * wiring.LATEST - 1}"]
    assert causes_of(first + last, last, many) == ["module.wiring"]
    found = explain.explain(wiring.FORMULA, junction(first + last, many))
    assert found and found.settings["terms"] == ("layers.0", f"layers.{3 * wiring.LATEST - 1}")


def junctions(reference: str, candidate: str, theirs: dict[str, np.ndarray]) -> tuple[wiring.Junction, wiring.Junction]:
    """Sums of one tensor and the embedding; in the reference `input/layer.norm` is the attention's output as well."""
    ours = EARLIER | {"input/layer.norm": EARLIER["layer.attention"]}
    names = {"input/layer.norm": "layer.attention"}
    both = ((ours, ours[reference] + X), (theirs, theirs[candidate] + X))
    first, second = (replace(junction(value, earlier), names=names) for earlier, value in both)
    return first, second


def test_another_tensor_than_those_of_the_same_name_is_another_wiring():
    theirs = EARLIER | {"input/layer.norm": draw(size=SHAPE)}
    found = explain.compare(wiring.FORMULA, *junctions("layer.attention", "layer.dropout", theirs))
    assert [change.cause for change in found.changes] == ["module.wiring"]


def test_what_one_function_explains_on_both_sides_is_no_difference():
    """Of positive numbers a ReLU is the identity; where the other side's are not, it is still the same function."""
    name, relu = "layer.linear", FUNCTIONS["relu"]
    ours, theirs = {name: np.abs(EARLIER[name])}, {name: EARLIER[name]}
    found = explain.compare(wiring.FORMULA, junction(relu(ours[name]), ours), junction(relu(theirs[name]), theirs))
    assert found.same and not found.changes
    found = explain.compare(wiring.FORMULA, junction(ours[name], ours), junction(np.tanh(theirs[name]), theirs))
    assert [change.cause for change in found.changes] == ["activation.kind"]


@pytest.mark.parametrize(
    ("smaller", "shape", "ways"),
    [
        ((2, 3), (2, 3, 4, 5), 1),
        ((3,), (2, 3, 3), 2),
        ((2, 1, 4), (2, 3, 4), 1),
        ((7,), (2, 3), 0),
        ((1, 1), (2, 3), 0),
    ],
)
def test_how_a_smaller_tensor_fits(smaller, shape, ways):
    array = draw(size=smaller)
    views = list(wiring._stretched(array, shape))
    assert len(views) == ways and all(view.shape == shape for view in views)
    assert all(set(view.flat) == set(array.flat) for view in views)
