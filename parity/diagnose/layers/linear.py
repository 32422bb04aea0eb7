"""Causes in linear layers and embeddings (transposed, bias, activation, other rows), and in pooling and flattening.

Windows over images have a padding, (top, bottom, left, right). The candidates are PyTorch's symmetric one, SAME (with
the odd pixel at the bottom and right, or at the top and left), and one that rounds the number of windows up. For
pooling neither kernel size nor stride is recorded: all that fit the shapes are tried.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import UNSET, Formula, Settings, Trait, choices, choices_if, require
from parity.diagnose.layers.activations import FUNCTIONS
from parity.diagnose.layers.call import Call, numbers, optional, parameter, unless_far

ROWS: Final = 16  # rows that are computed first, to reject settings that are far off
TIMES: Final = {"added": 1.0, "left out": 0.0, "added twice": 2.0}  # factor of a bias, by setting
BIASES: Final = choices_if(lambda call: "bias" in call.parameters, *TIMES)
OFFSETS: Final = {"as given": 0, "one too many": 1, "one too few": -1}  # of the ids of an embedding
CLIPPED: Final = "clipped to the table"


def _check_linear(call: Call) -> None:
    weight, x, y = parameter(call, "weight", 2), call.inputs[0], call.output
    require(x.ndim > 0 and x.shape[-1] == weight.shape[1], "an input of the weight's size")
    require(y.shape == (*x.shape[:-1], len(weight)), "an output of the weight's size")
    optional(call, "bias", (1, len(weight)))


def _linear(call: Call, **settings: Any) -> dict[str, Array]:
    y = call.output
    return {"output": unless_far(_applied, call, settings, y.reshape(-1, y.shape[-1]), ROWS).reshape(y.shape)}


def _applied(call: Call, rows: slice, settings: Settings) -> Array:
    x, weight = call.inputs[0], call.parameters["weight"]
    x = x.reshape(-1, x.shape[-1])[rows]
    result = x @ (weight if settings["weight"] == "transposed" else weight.T)
    if "bias" in call.parameters:
        result = result + TIMES[settings["bias"]] * call.parameters["bias"]
    return FUNCTIONS[settings["activation"]](result)


LINEAR = Formula(
    _linear,
    (
        Trait(
            "weight",
            "linear.weight",
            choices_if(lambda call: len(set(call.parameters["weight"].shape)) == 1, "(out, in)", "transposed"),
        ),
        Trait("bias", "linear.bias", BIASES),
        Trait("activation", "linear.activation", choices(*FUNCTIONS)),
    ),
    _check_linear,
)


def _check_embedding(call: Call) -> None:
    parameter(call, "weight", 2)
    require(call.output.shape[:-1] == call.inputs[0].shape and call.output.ndim > 0, "a vector for each id")


def _embedding(call: Call, ids: str, padding_idx: int | None, scale: float) -> dict[str, Array]:
    table = call.parameters["weight"]
    rows = call.inputs[0].astype(np.int64) + OFFSETS.get(ids, 0)
    if ids == CLIPPED:
        rows = rows.clip(0, len(table) - 1)
    require(not rows.size or 0 <= rows.min() <= rows.max() < len(table), "ids of the table's rows")
    vectors = table[rows] * scale
    vectors[rows == padding_idx] = 0.0
    return {"output": vectors}


def _padding(call: Call, settings: Settings) -> Iterator[int | None]:
    """Yield padding indices to try: none, and the only id whose vectors are all zero."""
    yield None
    ids = call.inputs[0].astype(np.int64)
    zero = np.unique(ids[~call.output.any(-1)])
    if len(zero) == 1:
        yield int(zero[0])


def _scales(call: Call, settings: Settings) -> Iterator[float]:
    yield 1.0
    yield math.sqrt(call.parameters["weight"].shape[1])
    unscaled = _embedding(call, settings["ids"], settings["padding_idx"], 1.0)["output"]
    yield from solve.scale(unscaled, call.output)


EMBEDDING = Formula(
    _embedding,
    (
        Trait("ids", "embedding.ids", choices(*OFFSETS, CLIPPED)),
        Trait("padding_idx", "embedding.padding_idx", _padding),
        Trait("scale", "embedding.scale", _scales),
    ),
    _check_embedding,
)
MOST: Final = 8  # largest stride that is tried
KERNELS: Final = (2, 3, 4, 5)
LETTERS: Final = "NCHW"  # names of the axes of a batch of images


def strides(size: tuple[int, ...], count: tuple[int, ...], window: tuple[int, ...]) -> list[int]:
    """Return the strides with which `count` windows fit into `size` pixels along all axes, the likeliest first."""
    fitting = [stride for stride in range(1, MOST + 1) if any(paddings(size, count, window, stride))]
    return sorted(fitting, key=lambda stride: abs(stride - size[0] / count[0]))


def paddings(
    size: tuple[int, ...], count: tuple[int, ...], window: tuple[int, ...], stride: int
) -> Iterator[tuple[int, ...]]:
    """Yield the paddings that fit, PyTorch's symmetric ones first: before and after, for each axis in turn.

    `size`: the pixels along each axis of the input. `count`: the windows along each axis, which is the size of the
    output. `window`: its size, gaps of dilation included. `stride`: the distance of two windows along all axes.
    """
    missing = [max((n - 1) * stride + w - s, 0) for s, n, w in zip(size, count, window, strict=True)]
    symmetric = itertools.product(*([(ends, ends) for ends in range(w)] for w in window))
    lower = tuple((m // 2, m - m // 2) for m in missing)
    upper = tuple((m - m // 2, m // 2) for m in missing)
    rounding_up = (tuple((ends, m - ends) for m in missing) for ends in range(max(window)))
    for ends in dict.fromkeys([*symmetric, lower, upper, *rounding_up]):
        axes = zip(size, ends, window, count, strict=True)
        # Exactly that number of windows fits along each axis, none of them wholly in the padding.
        if all(min(p) >= 0 and max(p) < w and (s + sum(p) - w) // stride + 1 == n for s, p, w, n in axes):
            yield tuple(itertools.chain(*ends))


def margins(x: Array, padding: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the `pad_width` for np.pad that pads the last two axes."""
    top, bottom, left, right = padding
    return [(0, 0)] * (x.ndim - 2) + [(top, bottom), (left, right)]


def strided(x: Array, start: tuple[int, ...], count: tuple[int, ...], stride: int) -> Array:
    """Return, of every window, the pixel at offset `start` in it."""
    (top, left), (rows, columns) = start, count
    return x[..., top : top + rows * stride : stride, left : left + columns * stride : stride]


def _check_images(call: Call) -> None:
    numbers(call, axes=4)
    require(min(*call.inputs[0].shape[2:], *call.output.shape[2:]) > 0, "pixels")
    require(call.inputs[0].dtype.kind not in "iu", "a type that has minus infinity, to stand around the image")


def _max_pool2d(call: Call, window: tuple[int, int], padding: tuple[int, ...], kind: str) -> dict[str, Array]:
    """Return the maxima, or the averages, over the windows."""
    require(padding in _paddings(call, {"window": window}), "a window and a padding that fit the shapes")

    def taps(pixels: Array, around: float) -> list[Array]:
        """Return each pixel of all windows, with a value `around` the image."""
        padded = np.pad(pixels, margins(pixels, padding), constant_values=around)
        offsets = itertools.product(range(window[0]), repeat=2)
        return [strided(padded, offset, call.output.shape[2:], window[1]) for offset in offsets]

    x = call.inputs[0]
    if kind == "maximum":
        return {"output": np.maximum.reduce(taps(x, -math.inf))}
    counted = taps(np.ones(x.shape[2:]), float(kind == "average"))
    return {"output": np.sum(taps(x, 0.0), axis=0) / np.sum(counted, axis=0)}


def _windows(call: Call, settings: Settings) -> list[tuple[int, int]]:
    """Return pairs of kernel size and stride that fit the shapes, the likeliest first."""
    size, count = call.inputs[0].shape[2:], call.output.shape[2:]
    windows = ((kernel, stride) for kernel in KERNELS for stride in strides(size, count, (kernel, kernel)))
    fitting = [(kernel, stride) for kernel, stride in windows if stride <= kernel]
    return sorted(fitting, key=lambda window: (abs(window[1] - size[0] / count[0]), window[0]))


def _paddings(call: Call, settings: Settings) -> Iterator[tuple[int, ...]]:
    if settings["window"] is not UNSET:
        kernel, stride = settings["window"]
        size, count = call.inputs[0].shape[2:], call.output.shape[2:]
        fitting = paddings(size, count, (kernel, kernel), stride)
        yield from (padding for padding in fitting if 2 * min(padding) <= kernel)  # PyTorch takes half a window at most


def _flatten(call: Call, order: str) -> dict[str, Array]:
    names = _axis_names(call)
    require(sorted(order.split(",")) == sorted(names[1:]), "those axes")
    x = call.inputs[0].transpose(0, *(names.index(name) for name in order.split(",")))
    return {"output": x.reshape(len(x), -1)}


def _axis_names(call: Call) -> list[str]:
    """Return a name for each axis: a letter of NCHW for images, else its number."""
    count = call.inputs[0].ndim
    return list(LETTERS) if count == len(LETTERS) else [str(axis) for axis in range(count)]


MAX_POOL2D = Formula(
    _max_pool2d,
    (
        Trait("kind", "pool.kind", choices("maximum", "average", "average without padding")),
        Trait("window", "max_pool.window", _windows),
        Trait("padding", "max_pool.padding", _paddings),
    ),
    _check_images,
)
FLATTEN: Final[Formula[Call]] = Formula(
    _flatten,
    (Trait("order", "flatten.order", lambda call, _: map(",".join, itertools.permutations(_axis_names(call)[1:]))),),
    lambda call: require(call.inputs[0].ndim > 1 and len(call.inputs[0]) > 0, "samples of at least one axis"),
)
