"""Calls of modules as evidence, and what PyTorch's modules compute, written down as their definitions say.

Slow and plain, element by element where the formulas in parity/diagnose/layers are not, so that both
being wrong in the same way is unlikely.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from parity.config import cases, schema
from parity.core.arrays import Array
from parity.diagnose.formula import seen
from parity.diagnose.layers.call import Call


def normal(*shape: int, seed: int = 0) -> Array:
    """Standard normal numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def transformer(d_model: int = 8, heads: int = 2, dropout: float = 0.0, causal: bool = False) -> schema.Case:
    """A case whose model has so many heads."""
    model = {"d_model": d_model, "heads": heads, "dropout": dropout, "causal": causal}
    return cases.resolve("transformer/single", {}, {"model": {"kind": "transformer", **model}})


class Example(NamedTuple):
    """Two observations that differ by one convention, what its cause is, and each side's value."""

    cause: str
    reference: Any
    candidate: Any
    mine: Any
    theirs: Any


def call(
    kind: str,
    inputs: Array | tuple[Array, ...],
    output: Array,
    parameters: Mapping[str, Array] | None = None,
    after: Mapping[str, Array] | None = None,
    **fields: Any,
) -> Call:
    """One call of a module. `after`: its buffers after the step."""
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    every: dict[str, Any] = {
        "name": "module",
        "kind": kind,
        "calls": (arguments,),
        "parameters": parameters or {},
        "buffers": {},
        "training": True,
        "replicas": (arguments,),
        "replica": 0,
        "case": transformer(),
        "step": 0,
        "seen": {name: seen(value) for name, value in {"output": output, **(after or {})}.items()},
    }
    return Call(**{**every, **fields})


def with_output(base: Call, output: Array) -> Call:
    """The call, returning something else."""
    return base._replace(seen={**base.seen, "output": seen(output)})


def standardised(x: Array, axes: tuple[int, ...], epsilon: float = 1e-5, unbiased: bool = False) -> Array:
    """Over some axes, without their mean and divided by the root of their variance."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    made = np.empty_like(x)
    for place in itertools.product(*(range(x.shape[axis]) for axis in kept)):
        index: list[Any] = [slice(None)] * x.ndim
        for axis, number in zip(kept, place, strict=True):
            index[axis] = number
        part = x[tuple(index)]
        mean = math.fsum(part.ravel()) / part.size
        variance = math.fsum((part.ravel() - mean) ** 2) / (part.size - unbiased)
        made[tuple(index)] = (part - mean) / math.sqrt(variance + epsilon)
    return made


def along(values: Array, axis: int, ndim: int) -> Array:
    """A vector that broadcasts along one axis."""
    return values.reshape([-1 if each == axis else 1 for each in range(ndim)])


def conv2d(x: Array, kernel: Array, bias: Array, stride: int, padding: tuple[int, int, int, int]) -> Array:
    """Window by window."""
    top, bottom, left, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height, width = kernel.shape[2:]
    rows = range(0, padded.shape[2] - height + 1, stride)
    columns = range(0, padded.shape[3] - width + 1, stride)
    made = np.empty((len(x), len(kernel), len(rows), len(columns)))
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
        window = padded[:, None, :, row : row + height, column : column + width]
        made[:, :, i, j] = (window * kernel).sum((2, 3, 4)) + bias
    return made


def conv_transpose2d(x: Array, kernel: Array, bias: Array, stride: int) -> Array:
    """Pixel by pixel, nothing cut off."""
    height, width = kernel.shape[2:]
    rows, columns = x.shape[2:]
    made = np.zeros((len(x), kernel.shape[1], (rows - 1) * stride + height, (columns - 1) * stride + width))
    for i, j in itertools.product(range(rows), range(columns)):
        spread = np.einsum("ni,iohw->nohw", x[:, :, i, j], kernel)
        made[:, :, i * stride : i * stride + height, j * stride : j * stride + width] += spread
    return made + along(bias, 1, 4)


def pooled(x: Array, kernel: int, stride: int, padding: tuple[int, int, int, int], average: bool = False) -> Array:
    """Window by window."""
    top, bottom, left, right = padding
    fill = 0.0 if average else -math.inf
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    rows = range(0, padded.shape[2] - kernel + 1, stride)
    columns = range(0, padded.shape[3] - kernel + 1, stride)
    made = np.empty((*x.shape[:2], len(rows), len(columns)))
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
        window = padded[:, :, row : row + kernel, column : column + kernel]
        made[:, :, i, j] = window.mean((2, 3)) if average else window.max((2, 3))
    return made


def attention_parameters(d: int, seed: int = 0) -> dict[str, Array]:
    """Of nn.MultiheadAttention."""
    shapes = {"in_proj_weight": (3 * d, d), "in_proj_bias": (3 * d,), "out_proj.weight": (d, d), "out_proj.bias": (d,)}
    return {name: normal(*shape, seed=seed + i) for i, (name, shape) in enumerate(shapes.items())}


def attention(
    inputs: tuple[Array, ...],
    parameters: Mapping[str, Array],
    heads: int = 2,
    scale: float | None = None,
    mask: Array | None = None,
    axis: int = 1,
    blind: float = math.nan,
    dropped: Array | None = None,
) -> Array:
    """Sequence by sequence and head by head.

    `axis`: along which the weights' sum is 1; `blind`: the weights where a query may look at nothing;
    `dropped`: what the weights are multiplied by.
    """
    query = inputs[0]
    size = query.shape[2] // heads
    weights, biases = np.split(parameters["in_proj_weight"], 3), np.split(parameters["in_proj_bias"], 3)
    q, k, v = (np.einsum("tnd,od->tno", x, w) + b for x, w, b in zip(inputs, weights, biases, strict=True))
    made = np.empty_like(q)
    for n, h in itertools.product(range(query.shape[1]), range(heads)):
        part = slice(h * size, (h + 1) * size)
        scores = np.array([[math.fsum(a * b) for b in k[:, n, part]] for a in q[:, n, part]])
        chances = np.exp(scores * (1 / math.sqrt(size) if scale is None else scale))
        chances = chances if mask is None else chances * mask
        with np.errstate(invalid="ignore"):
            chances = np.nan_to_num(chances / chances.sum(axis, keepdims=True), nan=blind)
        made[:, n, part] = (chances if dropped is None else chances * dropped[n, h]) @ v[:, n, part]
    return np.einsum("tnd,od->tno", made, parameters["out_proj.weight"]) + parameters["out_proj.bias"]
