"""Causes in convolutions, transposed ones included: windows, dilation, the kernel's axes, bias, fused activation.

A convolution is a sum over the positions in the kernel, of one matrix product each.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.formula import UNSET, Formula, Settings, Trait, choices, choices_if, require
from parity.diagnose.layers import linear
from parity.diagnose.layers.activations import FUNCTIONS
from parity.diagnose.layers.call import Call, numbers, parameter, per_channel, unless_far
from parity.diagnose.layers.linear import BIASES, TIMES

MODES: Final[dict[str, Literal["constant", "reflect", "wrap", "edge"]]] = {
    "zeros": "constant",
    "reflect": "reflect",
    "circular": "wrap",
    "replicate": "edge",
}
DILATIONS: Final = (1, 2, 3)
ORIENTATIONS: Final[dict[str, Callable[[Array], Array]]] = {  # of the kernel
    "as in PyTorch": lambda kernel: kernel,
    "flipped": lambda kernel: kernel[..., ::-1, ::-1],
    "height and width swapped": lambda kernel: kernel.swapaxes(2, 3),
    "in and out swapped": lambda kernel: kernel.swapaxes(0, 1),
}


def _check(call: Call, is_transposed: bool = False) -> None:
    """Require images, and a kernel whose channels fit: in PyTorch's layout, its second axis has those of a group."""
    numbers(call, axes=4)
    parameter(call, "weight", 4)
    require(call.inputs[0].size > 0 and call.output.size > 0, "pixels")
    per_channel(call, "bias", call.output.shape[1])
    given, returned = call.inputs[0].shape[1], call.output.shape[1]
    whole, of_groups = (given, returned) if is_transposed else (returned, given)
    count, of_group = call.parameters["weight"].shape[:2]
    groups, rest = divmod(of_groups, of_group)
    require(groups > 0 and not rest and count % groups == 0, "channels that the groups divide")
    require(whole == count, "channels as in the weight")


def _conv2d(call: Call, **settings: Any) -> dict[str, Array]:
    require(settings["padding"] in _paddings(call, settings), "a padding that fits the shapes")
    return {"output": unless_far(_convolved, call, settings, call.output)}


def _convolved(call: Call, samples: slice, settings: Settings) -> Array:
    """Return the convolution of some samples."""
    x, kernel = call.inputs[0][samples], ORIENTATIONS[settings["weight"]](call.parameters["weight"])
    stride, dilation = settings["stride"], settings["dilation"]
    groups, count = x.shape[1] // kernel.shape[1], _size(call.output)
    x = np.pad(x, linear.margins(x, settings["padding"]), MODES[settings["padding_mode"]])
    x, kernel = _grouped(x, groups), kernel.reshape(groups, -1, *kernel.shape[1:])
    total = np.zeros(())
    for i, j in np.ndindex(*_size(kernel)):
        pixels = linear.strided(x, (i * dilation, j * dilation), count, stride)
        total = total + kernel[..., i, j] @ pixels.reshape(*x.shape[:2], -1)
    return _finished(call, total.reshape(groups, -1, x.shape[2], *count), settings)


def _grouped(x: Array, groups: int) -> Array:
    """Return x in the shape (groups, channels of a group, samples, height, width)."""
    return np.moveaxis(x.reshape(len(x), groups, -1, *x.shape[2:]), 0, 2)


def _size(x: Array) -> tuple[int, int]:
    return x.shape[-2], x.shape[-1]


def _finished(call: Call, result: Array, settings: Settings) -> Array:
    """Return grouped channels in the order (samples, channels, height, width), with bias and activation."""
    result = np.moveaxis(result, 2, 0).reshape(result.shape[2], -1, *result.shape[3:])
    if "bias" in call.parameters:
        result = result + TIMES[settings["bias"]] * call.parameters["bias"].reshape(-1, 1, 1)
    return FUNCTIONS[settings["activation"]](result)


def _orientations(call: Call, settings: Settings) -> list[str]:
    """Return the orientations of the kernel that keep its shape."""
    kernel = call.parameters["weight"]
    return [name for name, turn in ORIENTATIONS.items() if turn(kernel).shape == kernel.shape]


def _window(call: Call, dilation: int) -> tuple[int, ...]:
    """Return the extent of the kernel on the image, with the gaps of dilation."""
    return tuple((size - 1) * dilation + 1 for size in _size(call.parameters["weight"]))


def _strides(call: Call, settings: Settings) -> list[int]:
    return linear.strides(_size(call.inputs[0]), _size(call.output), _window(call, settings["dilation"]))


def _paddings(call: Call, settings: Settings) -> Iterator[tuple[int, ...]]:
    if settings["stride"] is UNSET:
        return
    window = _window(call, settings["dilation"])
    yield from linear.paddings(_size(call.inputs[0]), _size(call.output), window, settings["stride"])


def _transposed_convolved(call: Call, samples: slice, settings: Settings) -> Array:
    """Return the transposed convolution of some samples: every pixel times the kernel, summed up and then cropped."""
    x, kernel = call.inputs[0][samples], ORIENTATIONS[settings["weight"]](call.parameters["weight"])
    groups, stride = call.output.shape[1] // kernel.shape[1], settings["stride"]
    x, kernel = _grouped(x, groups), kernel.reshape(groups, -1, *kernel.shape[1:])
    count = _size(x)
    whole = ((n - 1) * stride + k for n, k in zip(count, _size(kernel), strict=True))
    total = np.zeros((groups, kernel.shape[2], x.shape[2], *whole))
    for i, j in np.ndindex(*_size(kernel)):
        pixels = kernel[..., i, j].swapaxes(1, 2) @ x.reshape(*x.shape[:2], -1)
        linear.strided(total, (i, j), count, stride)[...] += pixels.reshape(groups, -1, *x.shape[2:])
    return _finished(call, _cropped(total, settings["padding"], _size(call.output)), settings)


def _cropped(whole: Array, padding: tuple[int, ...], size: tuple[int, int]) -> Array:
    """Return `size` pixels from the corner that the padding gives, zeros where there are none."""
    top, _, left, _ = padding
    missing = [max(start + n - m, 0) for start, n, m in zip((top, left), size, _size(whole), strict=True)]
    whole = np.pad(whole, linear.margins(whole, (0, missing[0], 0, missing[1])))
    return whole[..., top : top + size[0], left : left + size[1]]


def _spread_strides(call: Call, settings: Settings) -> list[int]:
    ratio = _size(call.output)[0] / _size(call.inputs[0])[0]
    fitting = (stride for stride in range(1, linear.MOST + 1) if any(_spread_paddings(call, {"stride": stride})))
    return sorted(fitting, key=lambda stride: abs(stride - ratio))


def _spread_paddings(call: Call, settings: Settings) -> Iterator[tuple[int, ...]]:
    """Yield what may be cropped at the top, bottom, left and right. A negative crop is PyTorch's output_padding."""
    if settings["stride"] is UNSET:
        return
    axes = zip(_size(call.inputs[0]), _size(call.output), _size(call.parameters["weight"]), strict=True)
    rows, columns = (_crops(*axis, settings["stride"]) for axis in axes)
    yield from (row + column for row, column in itertools.product(rows, columns))


def _crops(size: int, count: int, kernel: int, stride: int) -> list[tuple[int, int]]:
    """Return the crops at both ends of an axis: those of PyTorch's rule first, then others of the same total."""
    whole = (size - 1) * stride + kernel
    excess = whole - count
    torch = [(p, excess - p) for p in range(kernel) if 0 <= 2 * p - excess < stride]
    same = [(excess // 2, excess - excess // 2), (0, excess), (excess, 0)]
    return list(dict.fromkeys(torch + (same if 0 <= excess < kernel else [])))


CONV2D = Formula(
    _conv2d,
    (
        Trait("weight", "conv2d.weight", _orientations),
        Trait("dilation", "conv2d.dilation", choices_if(lambda call: max(_window(call, 1)) > 1, *DILATIONS)),
        Trait("stride", "conv2d.stride", _strides),
        Trait("padding", "conv2d.padding", _paddings),
        Trait("padding_mode", "conv2d.padding_mode", choices(*MODES)),
        Trait("bias", "conv2d.bias", BIASES),
        Trait("activation", "conv2d.activation", choices(*FUNCTIONS)),
    ),
    _check,
)
CONV_TRANSPOSE2D = Formula(
    lambda call, **settings: {"output": unless_far(_transposed_convolved, call, settings, call.output)},
    (
        Trait("weight", "conv_transpose", _orientations),
        Trait("stride", "conv_transpose.stride", _spread_strides),
        Trait("padding", "conv_transpose.padding", _spread_paddings),
        Trait("bias", "conv_transpose.bias", BIASES),
        Trait("activation", "conv_transpose.activation", choices(*FUNCTIONS)),
    ),
    functools.partial(_check, is_transposed=True),
)
