"""What stands between modules: sums, activation functions, factors and positions that one side has otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from parity.config import cases
from parity.core.precision import dtype
from parity.diagnose import explain, wiring
from parity.diagnose.formula import seen
from parity.diagnose.layers.activations import BOUNDED, FUNCTIONS

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


def test_numbers_without_axes():
    """A loss that a module returns beside its output is one."""
    earlier = {"first": np.array(2.0), "second": np.array(3.0)}
    assert causes_of(np.array(5.0), np.array(2.0), earlier) == ["module.wiring"]
    assert causes_of(np.array(5.0), np.array(5.0), earlier) == []


def test_noise_between_modules_is_not_a_position():
    assert causes_of(X, X + draw(size=SHAPE)) == []


def test_another_sum_with_a_position_is_no_position_more():
    """Where positions are subtracted that torch adds, no other encoding is added."""
    positions = np.broadcast_to(POSITIONS, SHAPE)
    earlier = {"words": X, "positions": positions}
    found = explain.compare(wiring.FORMULA, junction(X + positions, earlier), junction(X - positions, earlier))
    assert "transformer.position" not in [change.cause for change in found.changes]


def test_what_is_made_of_the_same_tensors_is_the_same_whatever_they_hold():
    other = {name: array + 1.0 for name, array in EARLIER.items()}
    theirs = junction(other["embedding"] + other["layer.dropout"], other)
    assert explain.compare(wiring.FORMULA, junction(X + ATTENDED), theirs).same


def test_zeros_are_no_evidence_of_another_wiring():
    """As after a module that returns nothing but zeros: whatever is made of zeros is the same."""
    theirs = junction(np.zeros(SHAPE), {**EARLIER, "layer.linear": np.zeros(SHAPE)})
    assert not explain.compare(wiring.FORMULA, junction(NORMED), theirs).changes


def test_nothing_recorded_before_explains_nothing():
    found = explain.compare(wiring.FORMULA, junction(X, {}), junction(ATTENDED, {}))
    assert (found.same, found.changes, found.known) == (False, (), False)


def test_of_a_single_sample_anything_would_be_a_position():
    first = {name: array[:, :1] for name, array in EARLIER.items()}
    found = explain.compare(wiring.FORMULA, junction(X[:, :1], first), junction(X[:, :1] + draw(size=(5, 1, 8)), first))
    assert found.changes == ()


def junctions(reference: str, candidate: str, theirs: dict[str, np.ndarray]) -> tuple[wiring.Junction, wiring.Junction]:
    """Sums of one tensor and the embedding; in the reference `input/layer.norm` is the attention's output as well."""
    ours = EARLIER | {"input/layer.norm": EARLIER["layer.attention"]}
    names = {"input/layer.norm": "layer.attention"}
    both = ((ours, ours[reference] + X), (theirs, theirs[candidate] + X))
    first, second = (replace(junction(value, earlier), names=names) for earlier, value in both)
    return first, second


@pytest.mark.parametrize("reference", ["layer.attention", "input/layer.norm"])
@pytest.mark.parametrize("candidate", ["layer.attention", "input/layer.norm"])
def test_a_tensor_of_several_names_is_one_term(reference, candidate):
    theirs = EARLIER | {"input/layer.norm": draw(size=SHAPE)}  # the candidate gives the norm something else
    found = explain.compare(wiring.FORMULA, *junctions(reference, candidate, theirs))
    assert found.same and not found.changes


def test_another_tensor_than_those_of_the_same_name_is_another_wiring():
    theirs = EARLIER | {"input/layer.norm": draw(size=SHAPE)}
    found = explain.compare(wiring.FORMULA, *junctions("layer.attention", "layer.dropout", theirs))
    assert [change.cause for change in found.changes] == ["module.wiring"]


def test_what_goes_into_a_norm_is_not_what_a_norm_returns():
    earlier = {"activation/embedding": X, "input/layer.norm": ATTENDED, "activation/layer.norm": NORMED}
    found = explain.compare(wiring.FORMULA, junction(X, earlier), junction(ATTENDED, earlier))
    assert [change.cause for change in found.changes] == ["module.wiring"]
    found = explain.compare(wiring.FORMULA, junction(ATTENDED, earlier), junction(NORMED, earlier))
    assert [change.cause for change in found.changes] == ["transformer.norm_order"]


@pytest.mark.parametrize(
    ("other", "norm", "expected"),
    [
        ("h.0.attention", "embeddings_layernorm", "module.wiring"),  # the block's sum without its attention
        ("embeddings", "h.0.norm", "transformer.norm_order"),
        ("attention", "norm", "transformer.norm_order"),
        ("h.0.attention", "h.0.norm", "transformer.norm_order"),
    ],
)
def test_a_norm_before_all_blocks_is_not_that_of_a_block(other: str, norm: str, expected: str) -> None:
    earlier = {f"activation/{other}": ATTENDED, f"activation/{norm}": NORMED}
    found = explain.compare(wiring.FORMULA, junction(ATTENDED, earlier), junction(NORMED, earlier))
    assert [change.cause for change in found.changes] == [expected]


def test_what_one_function_explains_on_both_sides_is_no_difference():
    """Of positive numbers a ReLU is the identity; where the other side's are not, it is still the same function."""
    name, relu = "layer.linear", FUNCTIONS["relu"]
    ours, theirs = {name: np.abs(EARLIER[name])}, {name: EARLIER[name]}
    found = explain.compare(wiring.FORMULA, junction(relu(ours[name]), ours), junction(relu(theirs[name]), theirs))
    assert found.same and not found.changes
    found = explain.compare(wiring.FORMULA, junction(ours[name], ours), junction(np.tanh(theirs[name]), theirs))
    assert [change.cause for change in found.changes] == ["activation.kind"]


BFLOAT16 = dtype("bfloat16")
EMBEDDED = draw(size=(5, 8))  # of words and features, the same for every sample


@pytest.mark.parametrize(
    ("reference", "candidate", "found"),
    [
        (X + ATTENDED, X * ATTENDED, ["module.operation"]),
        (X * ATTENDED, ATTENDED, ["module.wiring"]),
        (X * ATTENDED, X * EARLIER["layer.linear"], ["module.wiring"]),
        (X + EMBEDDED[:, None], X * EMBEDDED[:, None], ["module.operation"]),
        (X + EMBEDDED[:, None], X - EMBEDDED[:, None], ["module.operation"]),
        (X - ATTENDED, ATTENDED - X, ["module.wiring"]),
        (X / ATTENDED, X - ATTENDED, ["module.operation"]),
        (X + ATTENDED, (X + ATTENDED).astype(np.float16).astype(np.float64), ["precision.float16"]),
        (X.astype(BFLOAT16).astype(np.float64), X, ["precision.bfloat16"]),
        (ATTENDED + EMBEDDED[:, None], X + EMBEDDED[:, None], ["module.wiring"]),
        (X * EMBEDDED[:, None], X * EMBEDDED[:, None], []),
    ],
)
def test_products_and_tensors_that_are_broadcast(reference, candidate, found):
    stretched = {"time": [np.broadcast_to(EMBEDDED[:, None], SHAPE)]}
    both = [replace(junction(value), broadcast=stretched) for value in (reference, candidate)]
    explained = explain.compare(wiring.FORMULA, *both)
    assert [change.cause for change in explained.changes] == found and explained.same == (not found)


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


def test_a_relu_whose_input_stays_small_may_be_bounded():
    name, relu, relu6 = "layer.linear", FUNCTIONS["relu"], BOUNDED["relu6"]
    ours, theirs = {name: EARLIER[name]}, {name: 9.0 * EARLIER[name]}
    assert np.abs(ours[name]).max() < 6.0 < theirs[name].max()
    found = explain.compare(wiring.FORMULA, junction(relu(ours[name]), ours), junction(relu6(theirs[name]), theirs))
    assert found.same and not found.changes
    found = explain.compare(wiring.FORMULA, junction(relu(theirs[name]), theirs), junction(relu6(theirs[name]), theirs))
    assert [change.cause for change in found.changes] == ["relu.cap"]
