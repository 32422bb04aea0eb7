"""What stands between modules: sums, activation functions, factors and positions that one side has otherwise."""

import numpy as np
import pytest

from parity.config import cases
from parity.diagnose import explain, wiring
from parity.diagnose.layers.activations import FUNCTIONS
from parity.diagnose.observation import seen

CASE = cases.resolve("transformer/single")
SHAPE = (5, 3, 8)  # words, samples, features
draw = np.random.default_rng(0).normal
EARLIER = {
    name: draw(size=SHAPE) for name in ("embedding", "layer.attention", "layer.dropout", "layer.norm", "layer.linear")
}
X, ATTENDED, NORMED = EARLIER["embedding"], EARLIER["layer.dropout"], EARLIER["layer.norm"]
POSITIONS = draw(size=(5, 1, 8))


def junction(value: np.ndarray, earlier: dict[str, np.ndarray] = EARLIER) -> wiring.Junction:
    return wiring.Junction("input/layer.norm", earlier, CASE, {"input": seen(value)})


def causes(reference: np.ndarray, candidate: np.ndarray) -> list[str]:
    found = explain.compare(wiring.FORMULA, junction(reference), junction(candidate))
    return [change.cause for change in found.changes]


@pytest.mark.parametrize(
    ("reference", "candidate", "cause"),
    [
        (X + ATTENDED, ATTENDED, "module.wiring"),
        (X + ATTENDED, X + EARLIER["layer.attention"], "module.wiring"),
        (X, NORMED, "transformer.norm_order"),
        (X, X * 4.0, "module.scale"),
        (FUNCTIONS["relu"](EARLIER["layer.linear"]), FUNCTIONS["gelu"](EARLIER["layer.linear"]), "activation.kind"),
        (X, X + POSITIONS, "transformer.position"),
    ],
)
def test_it_is_named_whichever_side_has_it(reference, candidate, cause):
    assert causes(reference, candidate) == [cause]
    assert causes(candidate, reference) == [cause]
    assert causes(reference, reference) == causes(candidate, candidate) == []


def test_noise_between_modules_is_not_a_position():
    assert causes(X, X + draw(size=SHAPE)) == []


def test_what_is_made_of_the_same_tensors_is_the_same_whatever_they_hold():
    other = {name: array + 1.0 for name, array in EARLIER.items()}
    theirs = junction(other["embedding"] + other["layer.dropout"], other)
    assert explain.compare(wiring.FORMULA, junction(X + ATTENDED), theirs).same


def test_nothing_recorded_before_explains_nothing():
    found = explain.compare(wiring.FORMULA, junction(X, {}), junction(ATTENDED, {}))
    assert (found.same, found.changes, found.known) == (False, (), False)


def test_of_a_single_sample_anything_would_be_a_position():
    first = {name: array[:, :1] for name, array in EARLIER.items()}
    found = explain.compare(wiring.FORMULA, junction(X[:, :1], first), junction(X[:, :1] + draw(size=(5, 1, 8)), first))
    assert found.changes == ()
