"""Differences of behaviour in words, on modules of numpy functions."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.core.arrays import Array
from parity.diagnose.experiment import probes
from parity.diagnose.experiment.behaviour import describe
from parity.diagnose.experiment.probes import Responses, responses

Module = Callable[[Array], Array]
X = np.random.default_rng(0).normal(size=(2, 6, 4))
W = np.random.default_rng(1).normal(size=(4, 4))
B = np.random.default_rng(2).normal(size=4)
LOWER = np.tril(np.ones((6, 6), bool))
erf = np.vectorize(math.erf, otypes=[np.float64])


def told(torch: Module, keras: Module, x: Array = X) -> str:
    return describe(*(responses(lambda inputs, module=module: module(inputs[0]), [x]) for module in (torch, keras)))


def sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def leaky(slope: float) -> Module:
    return lambda x: np.where(x > 0, x, slope * x)


def elu(alpha: float, width: float = 1.0) -> Module:
    return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0) / width))


def gelu(c: float = math.sqrt(0.5)) -> Module:
    return lambda x: 0.5 * x * (1.0 + erf(c * x))


def gelu_tanh(a: float = math.sqrt(2.0 / math.pi), b: float = 0.044715) -> Module:
    return lambda x: 0.5 * x * (1.0 + np.tanh(a * (x + b * x**3)))


def swish(b: float) -> Module:
    return lambda x: x * sigmoid(b * x)


def softplus(x: Array, beta: float = 1.0) -> Array:
    return np.logaddexp(0.0, beta * x) / beta


CURVES = [
    (leaky(0.01), leaky(0.3), "torch 0.01 x below zero, keras 0.3 x"),
    (leaky(0.0), leaky(0.2), "torch 0 below zero, keras 0.2 x"),
    (
        lambda x: np.clip(x, 0, 6),
        leaky(0.0),
        "torch 0 below zero, x from zero to 6 and 6 above 6, keras 0 below zero and x above zero; they "
        "part between 6 and 64: at 64, torch gives 6, keras 64",
    ),
    (
        lambda x: np.clip(x / 6 + 0.5, 0, 1),
        lambda x: np.clip(0.2 * x + 0.5, 0, 1),
        "torch 0 below -3, 0.166667 x + 0.5 from -3 to 3 and 1 above 3, keras 0 below -2.5, 0.2 x + 0.5 "
        "from -2.5 to 2.5 and 1 above 2.5; they part between",
    ),
    (
        lambda x: np.clip(x, -1, 1),
        lambda x: np.clip(x, -1, 2),
        "torch -1 below -1, x from -1 to 1 and 1 above 1, keras -1 below -1, x from -1 to 2 and 2 above 2",
    ),
    (
        lambda x: np.where(x > 1, x, 0),
        leaky(0.0),
        "torch 0 below about 1 and x above about 1, keras 0 below zero and x above zero",
    ),
    (lambda x: x, lambda x: 2 * x + 0.5, "torch x, keras 2 x + 0.5"),
    (gelu(), gelu_tanh(), "torch exact GELU, keras GELU by tanh; they part between"),
    (gelu(), gelu(0.7071), "torch exact GELU, keras exact GELU with 0.7071 for sqrt(1/2)"),
    (
        gelu_tanh(),
        gelu_tanh(0.79788, 0.0447),
        "torch GELU by tanh, keras GELU by tanh with 0.79788 for sqrt(2/pi) and 0.0447 for the cube's factor",
    ),
    (
        gelu_tanh(),
        gelu_tanh(float(np.float32(math.sqrt(2 / math.pi)))),
        "torch GELU by tanh, keras GELU by tanh with 0.7978845",
    ),
    (gelu(), swish(1.702), "torch exact GELU, keras GELU by a sigmoid;"),
    (swish(1.0), swish(1.7), "torch SiLU, keras GELU by a sigmoid with 1.7 for the factor in the sigmoid"),
    (swish(1.0), lambda x: x * np.clip(x + 3, 0, 6) / 6, "torch SiLU, keras hard swish;"),
    (elu(1.0), elu(0.5), "torch ELU, keras ELU with 0.5 for alpha"),
    (elu(1.0), elu(2.0, 2.0), "torch ELU, keras ELU with 2 for alpha and 2 for the width"),
    (
        elu(1.0),
        lambda x: 1.0507009873554805 * elu(1.6732632423543772)(x),
        "torch ELU, keras 1.0507 times ELU with 1.67326 for alpha",
    ),
    (softplus, lambda x: softplus(x, 2.0), "torch softplus, keras softplus with 2 for beta"),
    (lambda x: x * np.tanh(softplus(x)), np.tanh, "torch mish, keras tanh"),
    (sigmoid, lambda x: 2.0 * sigmoid(x) - 0.3, "torch sigmoid, keras 2 times sigmoid minus 0.3"),
    (
        np.tanh,
        lambda x: np.log1p(x * x) * np.sign(x),
        "torch tanh, keras a curve of slope 0.0314 far below zero, -0.00017 at zero, slope 0.0314 far above",
    ),
]


@pytest.mark.parametrize(("torch", "keras", "words"), CURVES)
def test_curves_are_named_with_their_constants(torch: Module, keras: Module, words: str) -> None:
    assert told(torch, keras).startswith(f"both act on each element alone; {words}")
    assert told(keras, torch).startswith("both act on each element alone; torch ")


def test_constants_that_six_digits_do_not_tell_apart_have_more() -> None:
    assert "torch 0.2 x below zero, keras 0.200000002980" in told(leaky(0.2), leaky(float(np.float32(0.2))))
    words = told(gelu_tanh(0.79788456), gelu_tanh())
    assert "torch GELU by tanh with 0.79788456 for sqrt(2/pi), keras GELU by tanh;" in words


@settings(deadline=None, max_examples=30)
@given(st.floats(0.001, 0.9), st.floats(0.001, 0.9))
def test_any_two_slopes_are_told(one: float, other: float) -> None:
    words = told(leaky(one), leaky(other))
    near = abs(one - other) <= 2.0**-42
    assert near or ("torch" in words and "below zero, keras" in words and words.endswith(" x"))


@settings(deadline=None, max_examples=30)
@given(st.floats(0.2, 3.0))
def test_any_alpha_of_an_elu_is_solved_for(alpha: float) -> None:
    words = told(elu(1.0), elu(alpha))
    if abs(alpha - 1.0) > 1e-6:
        assert words.startswith(f"both act on each element alone; torch ELU, keras ELU with {alpha:.6g} for alpha")


def norm(x: Array, axis: int = -1, centred: bool = True) -> Array:
    x = x - x.mean(axis, keepdims=True) if centred else x
    return x / np.sqrt((x * x).mean(axis, keepdims=True))


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def attention(mask: Array | None = None) -> Module:
    def call(x: Array) -> Array:
        scores = x @ W @ x.swapaxes(-1, -2)
        return softmax(scores if mask is None else np.where(mask, scores, -1e9)) @ x

    return call


def shifted(x: Array, steps: int = 1) -> Array:
    before = np.zeros_like(x[:, :steps])
    return np.concatenate([before, x[:, :-steps]], 1)


def blurred(x: Array) -> Array:
    return x + shifted(x) + np.flip(shifted(np.flip(x, 1)), 1)


BEHAVIOURS = [
    (
        norm,
        lambda x: norm(x, centred=False),
        "torch gives the same output when 1 is added to its input, keras gives another",
    ),
    (
        lambda x: norm(x),
        lambda x: x - x.mean(-1, keepdims=True),
        "torch gives the same output when its input is doubled, keras doubles its output",
    ),
    (
        lambda x: softmax(x),
        lambda x: softmax(x, 1),
        "torch looks at one position along axis 1 at a time, keras looks at more than one position along axis 1",
    ),
    (
        lambda x: softmax(x),
        lambda x: softmax(x, 0),
        "torch looks at one row of the batch at a time, keras looks at more than one row of the batch",
    ),
    (
        attention(),
        attention(LOWER),
        "torch looks at more than one position along axis 1, keras looks at a position along axis 1 and "
        "those before it",
    ),
    (
        attention(LOWER),
        attention(LOWER.T),
        "torch looks at a position along axis 1 and those before it, keras looks at a position along axis "
        "1 and those after it",
    ),
    (
        attention(),
        lambda x: attention()(x + np.arange(6.0)[:, None]),
        "torch treats each position along axis 1 alike, keras depends on which position along axis 1 it is",
    ),
    (
        blurred,
        lambda x: x + shifted(x),
        "torch looks, for each position along axis 1, from 1 before to 1 after, keras looks, for each "
        "position along axis 1, from 1 before to itself",
    ),
    (lambda x: x @ W, lambda x: np.maximum(x @ W, 0.0), "torch is linear, keras is not linear"),
    (lambda x: x @ W, lambda x: x @ W + B, "keras adds the same numbers whatever the input, as a bias"),
    (
        lambda x: x @ W + B,
        lambda x: x @ W,
        "torch adds the same numbers whatever the input, as a bias",
    ),
    (lambda x: x @ W, lambda x: x @ W * 0.5, "keras's output is 0.5 times torch's, whatever the input"),
    (lambda x: x @ W, lambda x: x @ W + 0.25, "keras's output is torch's plus 0.25, whatever the input"),
    (lambda x: x @ W, lambda x: x @ W.T, "keras multiplies the last axis by torch's matrix transposed"),
    (
        lambda x: x @ W,
        lambda x: x @ W[:, [2, 0, 1, 3]],
        "keras's output is torch's in another order along its last axis: 2, 0, 1, 3",
    ),
    (lambda x: x @ W, lambda x: shifted(x @ W), "keras's output is torch's moved forward by 1 position along axis 1"),
    (lambda x: shifted(x @ W, 2), lambda x: x @ W, "keras's output is torch's moved back by 2 positions along axis 1"),
    (lambda x: x @ W, lambda x: np.flip(x @ W, 1), "keras's output is torch's reversed along axis 1"),
    (lambda x: np.tanh(x) @ W, lambda x: np.maximum(x, 0), "torch mixes elements, keras acts on each element alone"),
    (
        lambda x: np.tanh(x),
        lambda x: np.tanh(x) * np.arange(1.0, 5.0),
        "torch acts on each element alone, keras acts on each element alone, by a curve that is not the same for all",
    ),
    (lambda x: x @ W, lambda x: (x @ W)[:, 1:], "torch returns the shape [2, 6, 4], keras returns the shape [2, 5, 4]"),
]


@pytest.mark.parametrize(("torch", "keras", "words"), BEHAVIOURS)
def test_behaviour_is_told(torch: Module, keras: Module, words: str) -> None:
    assert words in told(torch, keras)
    back = told(keras, torch)
    halves = re.fullmatch("torch (.*), keras (.*)", words)
    assert f"torch {halves[2]}" in back if halves else back


def test_what_keeps_something_or_draws_at_random_is_told() -> None:
    class Counting:
        calls = 0

        def __call__(self, x: Array) -> Array:
            self.calls += float(np.abs(x).max() > 5.0)
            return x @ W + self.calls

    generator = np.random.default_rng(0)
    assert "torch gives the same output each time, keras keeps something from earlier calls" in told(
        lambda x: x @ W, Counting()
    )
    assert "keras gives another output when it is called again with the same input" in told(
        lambda x: x @ W, lambda x: x @ W + generator.normal(size=x.shape)
    )


def masked(polarity: bool, used: bool = True) -> Callable[[list[Array]], Array]:
    def call(inputs: list[Array]) -> Array:
        x, mask = inputs
        return softmax(np.where(mask == polarity, x, -1e9)) if used else softmax(x)

    return call


def test_the_use_of_a_mask_is_told() -> None:
    inputs = [X, np.arange(4) < 3]
    one, unused = responses(masked(True), inputs), responses(masked(True, False), inputs)
    assert "torch uses its input 1 (mask), keras ignores its input 1 (mask)" in describe(one, unused)
    assert "keras uses its input 1 (mask)" in describe(unused, one)


def test_ids_alone_still_have_a_description() -> None:
    ids = np.array([[0, 3, 1], [2, 2, 3]])
    one = responses(lambda inputs: W[inputs[0]], [ids])
    other = responses(lambda inputs: W[np.maximum(inputs[0] - 1, 0)], [ids])
    assert describe(one, other).startswith("for the input of this run 20 of 24 outputs differ, most at [")


def test_there_is_always_a_description_and_none_says_unknown() -> None:
    for torch, keras, _ in (*CURVES, *BEHAVIOURS):
        assert told(torch, keras) and "unknown" not in told(torch, keras)
    assert told(norm, norm).endswith("chosen inputs alike, so that the call itself must differ")
    assert (
        describe(Responses([X], {}), Responses([X], {})) == "one side refuses each chosen input that the other accepts"
    )
    tiny = told(attention(), lambda x: attention()(x * (1.0 + 1e-11)))
    assert "outputs differ, most at" in tiny and "alike" not in tiny.partition("for the input")[2]


def test_a_property_is_told_with_evidence_on_both_sides_only() -> None:
    def refusing(x: Array) -> Array:
        if x.min() < -7 or not x.any():
            raise ValueError("too small")
        return np.maximum(x, 0.0)

    words = told(refusing, leaky(0.1))
    assert "below zero" not in words and "linear" not in words
    assert words.startswith("each side acts on each element alone; ") and "outputs differ, most at" in words


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1, 5), (1, 3, 4, 4)])
def test_odd_shapes_are_described(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    assert told(lambda x: np.maximum(x, 0.0), lambda x: np.maximum(x, 0.0) + 0.1, x)
    assert told(lambda x: x.sum(), lambda x: x.mean() - 1.0, x)
    if x.size > 1:
        assert "torch 0.01 x below zero, keras 0.3 x" in told(leaky(0.01), leaky(0.3), x)


def test_probes_are_the_same_for_both_sides_and_bounded() -> None:
    large = np.zeros((64, 64, 64))
    names = [name for name, _ in probes.probes([large])]
    assert len(names) == len(set(names)) < 100
    assert all(
        np.array_equal(one, other)
        for (_, here), (_, there) in zip(probes.probes([X]), probes.probes([X]), strict=True)
        for one, other in zip(here, there, strict=True)
    )


def test_a_slow_module_is_asked_less_but_described(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(np.arange(0.0, 1e6, 3.0))
    monkeypatch.setattr(probes.time, "process_time", lambda: next(seconds))
    one, other = (responses(lambda inputs, s=s: leaky(s)(inputs[0]), [X]) for s in (0.1, 0.2))
    assert set(one.outputs) == {"given", "again", "last"}
    assert "outputs differ, most at" in describe(one, other)


def test_responses_are_read_as_they_were_written(tmp_path: Path) -> None:
    one, other = (responses(lambda inputs, s=s: leaky(s)(inputs[0]), [X]) for s in (0.1, 0.2))
    probes.write(one, tmp_path)
    assert describe(probes.read(tmp_path), other) == describe(one, other)
    assert np.array_equal(probes.inputs(tmp_path)[0], X) and probes.inputs(tmp_path / "none") == []
