"""Causes in modules: each is named, with both sides' values, where one side follows another convention; else none."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import calls
import numpy as np
import pytest
from calls import Array, along, call, normal
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parity.core import precision, random
from parity.diagnose import explain
from parity.diagnose.explain import Change
from parity.diagnose.formula import NEEDED
from parity.diagnose.layers import LAYERS
from parity.diagnose.layers.call import Call
from parity.diagnose.layers.rounding import at_run_precision
from parity.diagnose.observation import seen

BIASES = ("in_proj_bias", "out_proj.bias")
SIZES = st.integers(1, 9)
EPSILONS = st.sampled_from([1e-5, 1e-3, 0.0, 1e-12, 0.0025])
FAINT = 2.0**-30  # relative: below what 20 bits of evidence at float32 take


class Example(NamedTuple):
    """Two calls of a module that differ by one convention, and what its cause, and each side's value, are."""

    cause: str
    reference: Call
    candidate: Call
    mine: Any
    theirs: Any


def changes(reference: Call, candidate: Call) -> tuple[Change, ...]:
    """What the candidate does otherwise."""
    return explain.compare(LAYERS[reference.kind].formula, reference, candidate).changes


def with_output(base: Call, output: Array) -> Call:
    return base._replace(seen={**base.seen, "output": seen(output)})


def linear() -> Iterator[Example]:
    x, weight, bias = normal(6, 8), normal(8, 8, seed=1), normal(8)
    base = call("linear", x, np.einsum("ni,oi->no", x, weight) + bias, {"weight": weight, "bias": bias})
    y = base.seen["output"].value
    for cause, mine, theirs, output in (
        ("linear.weight", "(out, in)", "transposed", np.einsum("ni,io->no", x, weight) + bias),
        ("linear.bias", "added", "left out", y - bias),
        ("linear.bias", "added", "added twice", y + bias),
        ("linear.activation", "identity", "relu", np.where(y > 0, y, 0)),
        ("linear.activation", "identity", "silu", y / (1 + np.exp(-y))),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)


def layer_norm() -> Iterator[Example]:
    x, weight, bias = normal(5, 4, 16) + 1, normal(16), normal(16, seed=1)
    parameters = {"weight": weight, "bias": bias}

    def made(*axes: int, **options: Any) -> Array:
        return calls.standardised(x, axes, **options) * weight + bias

    base = call("layer_norm", x, made(2), parameters)
    root = np.sqrt(x.var(2, keepdims=True)) + 1e-5
    square = np.sqrt((x**2).mean(2, keepdims=True) + 1e-5)
    for cause, mine, theirs, output in (
        ("layer_norm.epsilon", 1e-5, 1e-3, made(2, epsilon=1e-3)),
        ("layer_norm.epsilon", 1e-5, 1.001e-5, made(2, epsilon=1.001e-5)),
        ("layer_norm.epsilon", 1e-5, 0.0, made(2, epsilon=0.0)),
        ("layer_norm.variance", "biased", "unbiased", made(2, unbiased=True)),
        (
            "layer_norm.epsilon_placement",
            "inside the root",
            "outside the root",
            (x - x.mean(2, keepdims=True)) / root * weight + bias,
        ),
        ("layer_norm.axes", (2,), (0,), made(0)),
        ("layer_norm.axes", (2,), (0, 2), made(0, 2)),
        ("layer_norm.rms", "subtracted", "kept", x / square * weight + bias),
        ("layer_norm.weight", "applied", "left out", calls.standardised(x, (2,)) + bias),
        ("layer_norm.bias", "added", "left out", calls.standardised(x, (2,)) * weight),
        ("module.skipped", False, True, x),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    final = base._replace(name="transformer.encoder.norm")
    yield Example("transformer.final_norm", final, with_output(final, x), "applied", "left out")


def group_norm() -> Iterator[Example]:
    x, weight, bias = normal(3, 8, 3, 4), along(normal(8), 1, 4), along(normal(8, seed=1), 1, 4)

    def made(groups: int, **options: Any) -> Array:
        parted = x.reshape(3, groups, 8 // groups, 3, 4)
        return calls.standardised(parted, (2, 3, 4), **options).reshape(x.shape) * weight + bias

    base = call("group_norm", x, made(2), {"weight": weight.ravel(), "bias": bias.ravel()})
    yield Example("group_norm.epsilon", base, with_output(base, made(2, epsilon=1e-3)), 1e-5, 1e-3)
    yield Example("group_norm.groups", base, with_output(base, made(4)), 2, 4)
    yield Example("group_norm.variance", base, with_output(base, made(2, unbiased=True)), "biased", "unbiased")


def batch_norm() -> Iterator[Example]:
    x, other, old = normal(6, 10, 2, 2) + 1, normal(6, 10, 2, 2, seed=1), np.abs(normal(10, seed=2)) + 1
    weight, bias, axes = normal(10, seed=3), normal(10, seed=4), (0, 2, 3)

    def after(x: Array, momentum: float = 0.1, unbiased: bool = True) -> dict[str, Array]:
        mean, variance = x.mean(axes), x.var(axes, ddof=int(unbiased))
        return {
            "running_mean": (1 - momentum) * old + momentum * mean,
            "running_var": (1 - momentum) * old + momentum * variance,
        }

    def made(standard: Array) -> Array:
        return standard * along(weight, 1, 4) + along(bias, 1, 4)

    def observed(output: Array, after: dict[str, Array], **fields: Any) -> Call:
        parameters, buffers = {"weight": weight, "bias": bias}, {"running_mean": old, "running_var": old}
        return call("batch_norm", x, output, parameters, after, buffers=buffers, **fields)

    y, unchanged = made(calls.standardised(x, axes)), {"running_mean": old, "running_var": old}
    by_running = made((x - along(old, 1, 4)) / along(np.sqrt(old + 1e-5), 1, 4))
    base = observed(y, after(x))
    coarse = made(calls.standardised(x, axes, epsilon=1e-3))
    yield Example("batch_norm.epsilon", base, observed(coarse, after(x)), 1e-5, 1e-3)
    yield Example("batch_norm.momentum", base, observed(y, after(x, momentum=0.01)), 0.1, 0.01)
    yield Example("batch_norm.momentum", base, observed(y, after(x, momentum=0.125)), 0.1, 0.125)
    yield Example("batch_norm.running_variance", base, observed(y, after(x, unbiased=False)), "unbiased", "biased")
    yield Example("batch_norm.frozen", base, observed(y, unchanged), False, True)
    yield Example("batch_norm.mode", base, observed(by_running, unchanged), "batch statistics", "running statistics")
    both, two = np.concatenate([x, other]), {"replicas": ((x,), (other,))}
    together = made(calls.standardised(both, axes)[:6])
    base = observed(y, after(x), **two)
    yield Example("batch_norm.scope", base, observed(together, after(both), **two), "this replica's", "all replicas'")
    as_own = after(both) | {"running_var": 0.9 * old + 0.1 * both.var(axes) * 24 / 23}
    corrected = observed(together, as_own, **two)
    yield Example("batch_norm.scope", base, corrected, "this replica's", "all replicas', corrected as this one's")
    second = observed(y, after(x), replicas=((other,), (x,)), replica=1)
    theirs = second._replace(seen={**second.seen, **{name: seen(value) for name, value in after(other).items()}})
    yield Example("batch_norm.buffers", second, theirs, "this replica's", "replica 0's")
    evaluated = observed(by_running, unchanged, training=False)
    yield Example("batch_norm.mode", evaluated, with_output(evaluated, y), "running statistics", "batch statistics")


def conv2d() -> Iterator[Example]:
    x, kernel, bias = normal(2, 3, 8, 8), normal(3, 3, 3, 3, seed=1), normal(3)

    def made(
        kernel: Array = kernel, bias: Array = bias, padding: tuple[int, ...] = (1, 1, 1, 1), stride: int = 1
    ) -> Array:
        return calls.conv2d(x, kernel, bias, stride, padding)

    def padded(mode: Any) -> Array:
        around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode)
        return calls.conv2d(around, kernel, bias, 1, (0, 0, 0, 0))

    base = call("conv2d", x, made(), {"weight": kernel, "bias": bias})
    for cause, mine, theirs, output in (
        ("conv2d.weight", "as in PyTorch", "flipped", made(kernel[..., ::-1, ::-1])),
        ("conv2d.weight", "as in PyTorch", "height and width swapped", made(kernel.swapaxes(2, 3))),
        ("conv2d.weight", "as in PyTorch", "in and out swapped", made(kernel.swapaxes(0, 1))),
        ("conv2d.padding_mode", "zeros", "reflect", padded("reflect")),
        ("conv2d.padding_mode", "zeros", "circular", padded("wrap")),
        ("conv2d.bias", "added", "left out", made(bias=0 * bias)),
        ("conv2d.activation", "identity", "relu", made().clip(0)),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    halved = with_output(base, made(stride=2))
    same = with_output(base, made(padding=(0, 1, 0, 1), stride=2))
    yield Example("conv2d.padding", halved, same, (1, 1, 1, 1), (0, 1, 0, 1))


def conv_transpose2d() -> Iterator[Example]:
    x, kernel, bias = normal(2, 4, 5, 5), normal(4, 4, 3, 3, seed=1), normal(4)

    def made(kernel: Array = kernel) -> Array:
        return calls.conv_transpose2d(x, kernel, bias, 2)

    base = call("conv_transpose2d", x, made()[..., 1:, 1:], {"weight": kernel, "bias": bias})
    for theirs, other in (
        ("flipped", kernel[..., ::-1, ::-1]),
        ("in and out swapped", kernel.swapaxes(0, 1)),
        ("height and width swapped", kernel.swapaxes(2, 3)),
    ):
        yield Example("conv_transpose", base, with_output(base, made(other)[..., 1:, 1:]), "as in PyTorch", theirs)
    same = with_output(base, made()[..., :-1, :-1])
    yield Example("conv_transpose.padding", base, same, (1, 0, 1, 0), (0, 1, 0, 1))


def max_pool2d() -> Iterator[Example]:
    x, around, behind = normal(2, 3, 8, 8), (1, 1, 1, 1), (0, 1, 0, 1)
    base = call("max_pool2d", x, calls.pooled(x, 3, 2, around))
    yield Example("max_pool.padding", base, with_output(base, calls.pooled(x, 3, 2, behind)), around, behind)
    odd = call("max_pool2d", normal(2, 3, 9, 9), calls.pooled(normal(2, 3, 9, 9), 2, 2, (0, 0, 0, 0)))
    up = with_output(odd, calls.pooled(odd.inputs[0], 2, 2, behind))
    yield Example("max_pool.padding", odd, up, (0, 0, 0, 0), behind)
    larger = with_output(odd, calls.pooled(odd.inputs[0], 3, 2, (0, 0, 0, 0)))
    yield Example("max_pool.window", odd, larger, (2, 2), (3, 2))
    average = with_output(odd, calls.pooled(odd.inputs[0], 2, 2, (0, 0, 0, 0), average=True))
    yield Example("pool.kind", odd, average, "maximum", "average")


def activations() -> Iterator[Example]:
    x = 4 * normal(12, 20)
    phi = np.array([math.erf(value / math.sqrt(2)) for value in x.ravel()]).reshape(x.shape)
    chance = 1 / (1 + np.exp(-x))
    base = call("relu", x, np.where(x > 0, x, 0))
    for cause, mine, theirs, output in (
        ("relu.dropped", False, True, x),
        ("relu.slope", 0.0, 0.01, np.where(x > 0, x, 0.01 * x)),
        ("relu.slope", 0.0, 0.2, np.where(x > 0, x, 0.2 * x)),
        ("relu.cap", math.inf, 6.0, x.clip(0, 6)),
        ("activation.kind", "relu", "gelu", x * (1 + phi) / 2),
        ("activation.kind", "relu", "silu", x * chance),
        ("activation.kind", "relu", "sigmoid", chance),
        ("activation.kind", "relu", "tanh", np.tanh(x)),
        ("activation.kind", "relu", "elu", np.where(x > 0, x, np.exp(x) - 1)),
        ("activation.kind", "relu", "softplus", np.log(1 + np.exp(x))),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    base = call("gelu", x, x * (1 + phi) / 2)
    tanh = x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    rounded = float(np.float32(math.sqrt(0.5)))
    single = x / 2 * (1 + np.array([math.erf(value * rounded) for value in x.ravel()]).reshape(x.shape))
    for cause, mine, theirs, output in (
        ("gelu.form", "exact", "tanh", tanh),
        ("gelu.form", "exact", "sigmoid(1.702 x)", x / (1 + np.exp(-1.702 * x))),
        ("activation.kind", "gelu", "silu", x * chance),
        ("activation.kind", "gelu", "identity", x),
        ("constant.precision", "float64", "float32", single),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)


def softmax() -> Iterator[Example]:
    x = normal(3, 4, 5)

    def made(axis: int, scale: float = 1.0) -> Array:
        return np.exp(scale * x) / np.exp(scale * x).sum(axis, keepdims=True)

    base = call("softmax", x, made(2))
    for cause, mine, theirs, output in (
        ("softmax.axis", 2, 0, made(0)),
        ("softmax.axis", 2, 1, made(1)),
        ("softmax.log", False, True, np.log(made(2))),
        ("softmax.scale", 1.0, 0.125, made(2, scale=0.125)),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)


def shapes() -> Iterator[Example]:
    x, ids, table = normal(2, 3, 4, 5), np.arange(24).reshape(6, 4) % 11, normal(12, 16)
    base = call("flatten", x, x.reshape(2, -1))
    channels_last = with_output(base, np.moveaxis(x, 1, 3).reshape(2, -1))
    yield Example("flatten.order", base, channels_last, "C,H,W", "H,W,C")
    base = call("embedding", ids, table[ids], {"weight": table})
    for cause, mine, theirs, output in (
        ("embedding.ids", "as given", "one too many", table[ids + 1]),
        ("embedding.scale", 1.0, 4.0, 4 * table[ids]),
        ("embedding.scale", 1.0, 0.3, 0.3 * table[ids]),
        ("embedding.padding_idx", None, 5, np.where(ids[..., None] == 5, 0, table[ids])),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    behind = base._replace(calls=((ids + 1,),))
    yield Example(
        "embedding.ids", with_output(behind, table[ids + 1]), with_output(behind, table[ids]), "as given", "one too few"
    )


def attention() -> Iterator[Example]:
    x, d, length = normal(5, 3, 8), 8, 5
    inputs, parameters = (x, x, x), calls.attention_parameters(8)

    def made(other: Mapping[str, Array] = {}, **options: Any) -> Array:
        return calls.attention(inputs, parameters | other, **options)

    packed = {name: np.split(parameters[name], 3) for name in ("in_proj_weight", "in_proj_bias")}
    swapped = {name: np.concatenate([k, q, v]) for name, (q, k, v) in packed.items()}
    turned = {"in_proj_weight": np.concatenate([block.T for block in packed["in_proj_weight"]])}
    out, causal = parameters["out_proj.weight"], np.tril(np.ones((length, length)))
    base = call("attention", inputs, made(), parameters)
    for cause, mine, theirs, output in (
        ("attention.key_dim", "d / heads", "d", made(scale=1 / math.sqrt(d))),
        ("attention.scale", "1 / sqrt(key_dim)", 0.3, made(scale=0.3)),
        ("attention.num_heads", 2, 4, made(heads=4)),
        ("attention.packing", "q,k,v", "k,q,v", made(swapped)),
        ("attention.heads", "(heads, head_dim)", "(head_dim, heads)", made(_interleaved(parameters))),
        ("attention.mask", "none", "causal", made(mask=causal)),
        ("attention.mask", "none", "causal, excluding itself", made(mask=np.tril(causal, -1))),
        ("attention.mask", "none", "causal, including the next", made(mask=np.tri(length, k=1))),
        ("attention.mask", "none", "itself and later", made(mask=causal.T)),
        ("attention.softmax_axis", "keys", "queries", made(axis=0)),
        ("attention.bias", "added", "left out", made({name: 0 * parameters[name] for name in BIASES})),
        ("attention.bias", "added", "only the input's", made({"out_proj.bias": np.zeros(d)})),
        ("attention.weight", "(out, in)", "input transposed", made(turned)),
        ("attention.weight", "(out, in)", "output transposed", made({"out_proj.weight": out.T})),
        (
            "attention.out_proj",
            "applied",
            "left out",
            made({"out_proj.weight": np.eye(d), "out_proj.bias": np.zeros(d)}),
        ),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    decoder = base._replace(name="transformer.decoder.layers.0.self_attn", case=calls.transformer(causal=True))
    yield Example(
        "attention.mask", with_output(decoder, made(mask=causal)), with_output(decoder, made()), "causal", "none"
    )
    strict = {"mask": np.tril(causal, -1)}
    blind = with_output(base, made(**strict))
    zeros, mean = with_output(base, made(**strict, blind=0.0)), with_output(base, made(**strict, blind=1 / length))
    yield Example("attention.fully_masked_row", zeros, blind, "zeros", "NaN")
    yield Example("attention.fully_masked_row", zeros, mean, "zeros", "mean")
    single = base._replace(case=calls.transformer(heads=1))
    rounded = float(np.float32(1 / math.sqrt(d)))
    one, other = with_output(single, made(heads=1)), with_output(single, made(heads=1, scale=rounded))
    yield Example("constant.precision", one, other, "float64", "float32")


def batch_first() -> Iterator[Example]:
    parameters, inputs = calls.attention_parameters(8), tuple(normal(4, 4, 8, seed=i) for i in range(3))
    base = call("attention", inputs, calls.attention(inputs, parameters), parameters)
    turned = tuple(each.swapaxes(0, 1) for each in inputs)
    other = with_output(base, calls.attention(turned, parameters).swapaxes(0, 1))
    yield Example("attention.batch_first", base, other, "sequence first", "batch first")


def _interleaved(parameters: Mapping[str, Array]) -> dict[str, Array]:
    """The weights with which two heads of four features come to what interleaved heads come to."""
    order = [2 * i + head for head in range(2) for i in range(4)]
    blocks = {name: np.split(parameters[name], 3) for name in ("in_proj_weight", "in_proj_bias")}
    packed = {name: np.concatenate([block[order] for block in each]) for name, each in blocks.items()}
    return packed | {"out_proj.weight": parameters["out_proj.weight"][:, order]}


def dropout() -> Iterator[Example]:
    x, case = normal(12, 20), calls.transformer(dropout=0.1)
    fields = {"name": "encoder.layers.0.dropout1", "case": case, "replica": 1, "step": 2, "number": 1}

    def kept(replica: int = 1, step: int = 2, rate: float = 0.1) -> Array:
        return random.keep(case.seed, fields["name"], replica, step, 1, x.shape, rate)

    base = call("dropout", x, x * kept() / 0.9, **fields)
    for cause, mine, theirs, output in (
        ("dropout.rate", 0.1, 0.2, x * kept(rate=0.2) / 0.8),
        ("dropout.rate", 0.1, 0.37, x * kept(rate=0.37) / 0.63),
        ("dropout.scale", "scaled by 1 / (1 - rate)", "not scaled", x * kept()),
        ("dropout.active", True, False, x),
        ("dropout.replicas", 1, 0, x * kept(replica=0) / 0.9),
        ("dropout.step", 2, 0, x * kept(step=0) / 0.9),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    own = np.random.default_rng(1).random(x.shape) > 0.1
    digest = f"another: {hashlib.blake2b(own.tobytes(), digest_size=4).hexdigest()}"
    yield Example("dropout.generator", base, with_output(base, x * own / 0.9), "the shared generator", digest)
    evaluated = call("dropout", x, x, **fields | {"training": False})
    yield Example("dropout.active", evaluated, with_output(evaluated, x * kept() / 0.9), False, True)


def test_dropout_by_other_masks_in_evaluation() -> None:
    x = normal(12, 20)
    reference = call("dropout", x, x, case=calls.transformer(dropout=0.1), training=False)
    dropped = with_output(reference, x * (np.random.default_rng(1).random(x.shape) > 0.1) / 0.9)
    assert [each.cause for each in changes(reference, dropped)] == ["dropout.active", "dropout.generator"]


def dropped_attention() -> Iterator[Example]:
    x, parameters, case = normal(5, 3, 8), calls.attention_parameters(8), calls.transformer(dropout=0.1)
    inputs, fields = (x, x, x), {"name": "encoder.layers.0.self_attn", "case": case, "replica": 1, "step": 2}

    def made(replica: int = 1, step: int = 2, rate: float = 0.1, factor: float | None = None) -> Array:
        kept = random.keep(case.seed, "encoder.layers.0.self_attn", replica, step, 0, (3, 2, 5, 5), rate)
        return calls.attention(inputs, parameters, dropped=kept * (factor or 1 / (1 - rate)))

    base = call("attention", inputs, made(), parameters, **fields)
    for cause, mine, theirs, output in (
        ("dropout.active", True, False, made(rate=0.0)),
        ("dropout.rate", 0.1, 0.2, made(rate=0.2)),
        ("dropout.scale", "scaled by 1 / (1 - rate)", "not scaled", made(factor=1.0)),
        ("dropout.replicas", 1, 0, made(replica=0)),
        ("dropout.step", 2, 0, made(step=0)),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)


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


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(2, 9), features=st.integers(4, 40), power=st.floats(-7.0, -1.0), scale=st.floats(0.1, 10.0))
def test_any_epsilon_is_solved_for(rows: int, features: int, power: float, scale: float) -> None:
    epsilon = 10.0**power
    assume(abs(epsilon / 1e-5 - 1) > 0.1)
    x, parameters = scale * normal(rows, features), {"weight": normal(features), "bias": normal(features, seed=1)}

    def observed(epsilon: float) -> Call:
        made = calls.standardised(x, (1,), epsilon) * parameters["weight"] + parameters["bias"]
        return call("layer_norm", x, made, parameters)

    (found,) = changes(observed(1e-5), observed(epsilon))
    assert (found.cause, found.reference) == ("layer_norm.epsilon", 1e-5)
    assert found.candidate == pytest.approx(epsilon, rel=1e-3)


def agree(build: Callable[[int], Call]) -> None:
    """No cause between calls of one convention: the same one rounded otherwise, and one of other data."""
    one, other = build(0), build(1)
    output = one.seen["output"].value
    rounded = with_output(one, output + np.spacing(np.abs(output).max()) * np.sign(normal(*output.shape)))
    for candidate in (rounded, other):
        assert explain.compare(LAYERS[one.kind].formula, one, candidate).same


@settings(max_examples=30, deadline=None)
@given(rows=SIZES, inputs=SIZES, outputs=SIZES)
def test_linear_layers_that_agree(rows: int, inputs: int, outputs: int) -> None:
    weight = normal(outputs, inputs)
    agree(lambda seed: call("linear", x := normal(rows, inputs, seed=seed), x @ weight.T, {"weight": weight}))


@settings(max_examples=30, deadline=None)
@given(
    rows=SIZES, channels=st.integers(8, 12), size=st.integers(2, 5), epsilon=EPSILONS, momentum=st.floats(0.001, 0.999)
)
def test_batch_norms_that_agree(rows: int, channels: int, size: int, epsilon: float, momentum: float) -> None:
    def build(seed: int) -> Call:
        x, old = normal(rows, channels, size, size, seed=seed), np.ones(channels)
        output = calls.standardised(x, (0, 2, 3), epsilon)
        after = {
            "running_mean": (1 - momentum) * old + momentum * x.mean((0, 2, 3)),
            "running_var": (1 - momentum) * old + momentum * x.var((0, 2, 3), ddof=1),
        }
        return call("batch_norm", x, output, {}, after, buffers={"running_mean": old, "running_var": old})

    agree(build)


def test_a_batch_norm_may_be_called_with_images_of_several_sizes() -> None:
    large, small, old = normal(4, 3, 6, 6), normal(4, 3, 2, 2), np.ones(3)

    def observed(momentum: float) -> Call:
        mean, variance = old, old
        for x in (large, small):
            mean = mean + momentum * (x.mean((0, 2, 3)) - mean)
            variance = variance + momentum * (x.var((0, 2, 3), ddof=1) - variance)
        after, buffers = ({"running_mean": m, "running_var": v} for m, v in ((mean, variance), (old, old)))
        output = calls.standardised(large, (0, 2, 3))
        return call("batch_norm", large, output, {}, after, buffers=buffers, calls=((large,), (small,)))

    (found,) = changes(observed(0.1), observed(0.01))
    assert (found.cause, found.reference, found.candidate) == ("batch_norm.momentum", 0.1, 0.01)


@settings(max_examples=30, deadline=None)
@given(size=st.integers(4, 9), kernel=st.integers(1, 4), stride=st.integers(1, 3), same=st.booleans())
def test_convolutions_that_agree(size: int, kernel: int, stride: int, same: bool) -> None:
    weight, bias = normal(3, 2, kernel, kernel), normal(3)
    missing = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    before, after = (missing // 2, missing - missing // 2) if same else (kernel // 2, kernel // 2)

    def build(seed: int) -> Call:
        x = normal(2, 2, size, size, seed=seed)
        output = calls.conv2d(x, weight, bias, stride, (before, after, before, after))
        return call("conv2d", x, output, {"weight": weight, "bias": bias})

    agree(build)


@settings(max_examples=20, deadline=None)
@given(queries=SIZES, keys=SIZES, samples=SIZES, heads=st.sampled_from([1, 2, 4]), size=st.integers(1, 4))
def test_attentions_that_agree(queries: int, keys: int, samples: int, heads: int, size: int) -> None:
    d = heads * size
    parameters, case = calls.attention_parameters(d), calls.transformer(d, heads)

    def build(seed: int) -> Call:
        memory = normal(keys, samples, d, seed=seed)
        inputs = (normal(queries, samples, d, seed=seed), memory, memory)
        return call("attention", inputs, calls.attention(inputs, parameters, heads), parameters, case=case)

    agree(build)


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


@pytest.mark.parametrize("to", ["bfloat16", "tf32"])
def test_rounded_factors_are_named(to: str) -> None:
    low = run_low(LINEAR, rounded(X, to) @ rounded(WEIGHT, to).T + BIAS)
    found = at_run_precision(LAYERS["linear"].formula, LINEAR, low)
    assert found and (found.cause, found.reference, found.candidate) == (f"precision.{to}", "float32", to)


@pytest.mark.parametrize("to", ["bfloat16", "float16"])
def test_rounded_results_are_named(to: str) -> None:
    product = rounded(rounded(X, to) @ rounded(WEIGHT, to).T, to)
    outputs = ((LINEAR, product + BIAS), (LINEAR, rounded(output_of(LINEAR), to)), (NORM, rounded(output_of(NORM), to)))
    for high, output in outputs:
        found = at_run_precision(LAYERS[high.kind].formula, high, run_low(high, output))
        assert found and found.cause == f"precision.{to}"


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


def test_another_convention_at_the_run_precision_is_named() -> None:
    coarse = calls.standardised(X, (1,), epsilon=1e-3)
    for high, output, cause in ((RELU, X, "relu.dropped"), (NORM, coarse, "layer_norm.epsilon")):
        found = at_run_precision(LAYERS[high.kind].formula, high, run_low(high, output))
        assert found and found.cause == cause


def test_honest_rounding_and_noise_have_no_cause() -> None:
    noise = 2.0**-10 * normal(20, 32)
    for high in (LINEAR, NORM, RELU):
        assert at_run_precision(LAYERS[high.kind].formula, high, run_low(high, output_of(high))) is None
    assert at_run_precision(LAYERS["linear"].formula, LINEAR, run_low(LINEAR, output_of(LINEAR) + noise)) is None


def output_of(base: Call) -> Array:
    return base.seen["output"].value
