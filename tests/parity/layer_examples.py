"""Layers that follow another convention than a plain one does, each with the cause that is to be named."""

import math
from collections.abc import Iterator
from typing import Any

import calls
import numpy as np
from calls import Array, Example, along, call, normal, with_output

from parity.diagnose.formula import seen
from parity.diagnose.layers.call import Call


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
    yield Example("batch_norm.updates", base, observed(y, after(x, momentum=0.19)), 1, 2)
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
    leaky = call("relu", x, np.where(x > 0, x, 0.2 * x))
    rounded_slope = with_output(leaky, np.where(x > 0, x, float(np.float32(0.2)) * x))
    yield Example("constant.precision", leaky, rounded_slope, "float64", "float32")
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
