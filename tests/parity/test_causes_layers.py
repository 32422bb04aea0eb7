"""Causes in modules: each is named, with both sides' values, where one side follows another convention; else none."""

import calls
import numpy as np
import pytest
from attention_examples import attention, batch_first, dropout, dropped_attention
from calls import Array, Example, call, normal, with_output
from layer_examples import (
    activations,
    batch_norm,
    conv2d,
    conv_transpose2d,
    group_norm,
    layer_norm,
    linear,
    max_pool2d,
    shapes,
    softmax,
)
from msgspec import structs

from parity.config.pair import Pair, PairInput
from parity.core import precision, random
from parity.diagnose import explain
from parity.diagnose.explain import Change
from parity.diagnose.formula import NEEDED
from parity.diagnose.layers import LAYERS
from parity.diagnose.layers.call import Call
from parity.diagnose.layers.rounding import at_run_precision

FAINT = 2.0**-30  # relative: below what 20 bits of evidence at float32 take


def changes(reference: Call, candidate: Call) -> tuple[Change, ...]:
    """What the candidate does otherwise."""
    return explain.compare(LAYERS[reference.kind].formula, reference, candidate).changes


EVERY = [
    example
    for examples in (
        linear,
        layer_norm,
        group_norm,
        batch_norm,
        conv2d,
        conv_transpose2d,
        max_pool2d,
        activations,
        softmax,
        shapes,
        attention,
        batch_first,
        dropout,
        dropped_attention,
    )
    for example in examples()
]
every = pytest.mark.parametrize("example", EVERY, ids=[f"{each.cause}={each.theirs}" for each in EVERY])


@every
def test_the_other_convention_is_named(example: Example) -> None:
    """Alone, and with both sides' values."""
    found = changes(example.reference, example.candidate)
    assert [(each.cause, each.reference, each.candidate) for each in found] == [
        (example.cause, example.mine, example.theirs)
    ]
    assert found[0].bits >= NEEDED > found[0].before


@every
def test_the_other_way_round(example: Example) -> None:
    """The reference may be the one that is unusual."""
    found = changes(example.candidate, example.reference)
    assert [(each.cause, each.reference, each.candidate) for each in found] == [
        (example.cause, example.theirs, example.mine)
    ]


@every
def test_no_cause_where_both_follow_it(example: Example) -> None:
    for side in (example.reference, example.candidate):
        assert explain.compare(LAYERS[side.kind].formula, side, side).same


@pytest.mark.parametrize("kind", LAYERS)
def test_faint_evidence_names_nothing(kind: str) -> None:
    """Neither beside the same convention nor on top of another one."""
    example = next(each for each in EVERY if each.reference.kind == kind)
    for base in (example.reference, example.candidate):
        output = base.seen["output"].value
        faint = FAINT * np.abs(output).max() * normal(*output.shape, seed=1)
        assert not changes(example.reference, with_output(base, output + faint))


def test_every_kind_has_an_example() -> None:
    assert {each.reference.kind for each in EVERY} == set(LAYERS)


def run_low(high: Call, output: Array) -> Call:
    """The float32 run beside a float64 one, with this output."""
    single = {name: value.astype(np.float32) for name, value in high.parameters.items()}
    inputs = tuple(x.astype(np.float32) for x in high.inputs)
    return with_output(high._replace(calls=(inputs,), parameters=single), output.astype(np.float32))


def rounded(x: Array, to: str) -> Array:
    """To float16 or bfloat16 by their types, to TF32 by its ten bits."""
    if to != "tf32":
        return x.astype(precision.dtype(to)).astype(np.float64)
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.round(fraction * 2**11) / 2**11, exponent)


X, WEIGHT, BIAS = (normal(*shape).astype(np.float32).astype(np.float64) for shape in ((20, 64), (32, 64), (32,)))
LINEAR = call("linear", X, X @ WEIGHT.T + BIAS, {"weight": WEIGHT, "bias": BIAS})
NORM = call("layer_norm", X, calls.standardised(X, (1,)))
RELU = call("relu", X, np.maximum(X, 0))


@pytest.mark.parametrize("to", ["bfloat16", "float16"])
def test_rounded_heads_are_named(to: str) -> None:
    x, parameters = normal(5, 3, 8).astype(np.float32).astype(np.float64), calls.attention_parameters(8)
    parameters = {name: value.astype(np.float32).astype(np.float64) for name, value in parameters.items()}
    high = call("attention", (x, x, x), calls.attention((x, x, x), parameters), parameters)
    alone = parameters | {"out_proj.weight": np.eye(8), "out_proj.bias": np.zeros(8)}
    heads = rounded(calls.attention((x, x, x), alone), to)
    low = run_low(high, heads @ parameters["out_proj.weight"].T + parameters["out_proj.bias"])
    found = at_run_precision(LAYERS["attention"].formula, high, low)
    assert found and found.cause == f"precision.{to}"


def test_honest_rounding_and_noise_have_no_cause() -> None:
    noise = 2.0**-10 * normal(20, 32)
    for high in (LINEAR, NORM, RELU):
        assert at_run_precision(LAYERS[high.kind].formula, high, run_low(high, output_of(high))) is None
    assert at_run_precision(LAYERS["linear"].formula, LINEAR, run_low(LINEAR, output_of(LINEAR) + noise)) is None


def output_of(base: Call) -> Array:
    return base.seen["output"].value


def of_a_pair(drawn: int) -> Call:
    """A dropout of a pair's that got the mask of this number among those of its size."""
    x = normal(16, 20)
    case = structs.replace(
        calls.transformer(), model=Pair(torch="a:b", keras="a:b", inputs={"x": PairInput(shape=[1])})
    )
    kept = random.keep(case.seed, random.mask_name(x.size), 0, 0, drawn, x.shape, 0.25)
    return call("dropout", x, x * kept / 0.75, case=case)


def test_a_mask_of_ones_own_in_a_pair_is_no_other_number() -> None:
    shared = of_a_pair(1)
    own = with_output(shared, shared.inputs[0] * (np.random.default_rng(1).random((16, 20)) > 0.25) / 0.75)
    (change,) = changes(shared, own)
    assert change.cause == "dropout.generator" and str(change.candidate).startswith("a mask of its own")
