"""Causes in pooling and flattening: where the windows lie, averages instead of maxima, the order of the axes.

Neither kernel size nor stride is recorded: all that fit the shapes are tried.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.formula import UNSET, Formula, Settings, Trait, choices, require
from parity.diagnose.layers import windows
from parity.diagnose.layers.call import Call
from parity.diagnose.layers.evidence import numbers

KERNELS: Final = (2, 3, 4, 5)
LETTERS: Final = "NCHW"  # names of the axes of a batch of images


def _check_images(call: Call) -> None:
    numbers(call, axes=4)
    require(min(*call.inputs[0].shape[2:], *call.output.shape[2:]) > 0, "pixels")
    require(call.inputs[0].dtype.kind not in "iu", "a type that has minus infinity, to stand around the image")


def _max_pool2d(call: Call, window: tuple[int, int], padding: tuple[int, ...], kind: str) -> dict[str, Array]:
    """Return the maxima, or the averages, over the windows."""
    require(padding in _paddings(call, {"window": window}), "a window and a padding that fit the shapes")
    kernel, stride = window
    fill = -math.inf if kind == "maximum" else 0.0
    x = np.pad(call.inputs[0], windows.margins(call.inputs[0], padding), constant_values=fill)
    count = call.output.shape[2:]
    taps = (windows.strided(x, offset, count, stride) for offset in itertools.product(range(kernel), repeat=2))
    if kind == "maximum":
        return {"output": np.maximum.reduce(list(taps))}
    return {"output": np.sum(list(taps), axis=0) / _window_sizes(call, window, padding, kind)}


def _window_sizes(call: Call, window: tuple[int, int], padding: tuple[int, ...], kind: str) -> Array:
    """Return the number of pixels that each average is taken over."""
    kernel, stride = window
    inside = np.ones(call.inputs[0].shape[2:])
    inside = np.pad(inside, windows.margins(inside, padding), constant_values=float(kind == "average"))
    offsets = itertools.product(range(kernel), repeat=2)
    return np.asarray(sum(windows.strided(inside, offset, call.output.shape[2:], stride) for offset in offsets))


def _windows(call: Call, settings: Settings) -> Iterator[tuple[int, int]]:
    """Yield pairs of kernel size and stride that fit the shapes, the likeliest first."""
    size, count = call.inputs[0].shape[2:], call.output.shape[2:]
    fitting = []
    for kernel in KERNELS:
        by_axis = [windows.strides(*axis, kernel) for axis in zip(size, count, strict=True)]
        fitting += [(kernel, stride) for stride in by_axis[0] if stride in by_axis[1] and stride <= kernel]
    yield from sorted(fitting, key=lambda window: (abs(window[1] - size[0] / count[0]), window[0]))


def _paddings(call: Call, settings: Settings) -> Iterator[tuple[int, ...]]:
    if settings["window"] is not UNSET:
        kernel, stride = settings["window"]
        size, count = call.inputs[0].shape[2:], call.output.shape[2:]
        yield from (
            padding
            for padding in windows.paddings(size, count, (kernel, kernel), stride)
            if 2 * min(padding) <= kernel  # PyTorch takes no more than half a window
        )


def _check_samples(call: Call) -> None:
    require(call.inputs[0].ndim > 1 and len(call.inputs[0]) > 0, "samples of at least one axis")


def _flatten(call: Call, order: str) -> dict[str, Array]:
    names = _axis_names(call)
    require(sorted(order.split(",")) == sorted(names[1:]), "those axes")
    x = call.inputs[0].transpose(0, *(names.index(name) for name in order.split(",")))
    return {"output": x.reshape(len(x), -1)}


def _axis_names(call: Call) -> list[str]:
    """Return a name for each axis: a letter of NCHW for images, else its number."""
    count = call.inputs[0].ndim
    return list(LETTERS) if count == len(LETTERS) else [str(axis) for axis in range(count)]


def _orders(call: Call, settings: Settings) -> Iterator[str]:
    return (",".join(order) for order in itertools.permutations(_axis_names(call)[1:]))


MAX_POOL2D = Formula(
    _max_pool2d,
    (
        Trait("kind", "pool.kind", choices("maximum", "average", "average without padding")),
        Trait("window", "max_pool.window", _windows),
        Trait("padding", "max_pool.padding", _paddings),
    ),
    _check_images,
)
FLATTEN = Formula(_flatten, (Trait("order", "flatten.order", _orders),), _check_samples)
