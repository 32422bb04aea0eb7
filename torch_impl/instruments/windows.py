"""Other paddings of the ops that lay windows on an image, and other widths of a padding."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.operations import Axis, Margins, Operation

CONV, TRANSPOSED, MAXIMUM, AVERAGE = "conv", "conv_transpose", "max_pool", "avg_pool"
# The arguments of the functions that lay windows; the number of axes follows in their names.
ARGUMENTS = {
    CONV: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    TRANSPOSED: ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
    MAXIMUM: ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    AVERAGE: ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
}
POOLS = (MAXIMUM, AVERAGE)
PAD = ways.PAD  # of nn.functional
Function = Callable[..., Any]
Given = dict[str, Any]  # the arguments of a function by name


def kind_of(name: str) -> str:
    """Return the kind of a function that lays windows, without the number of its axes."""
    return re.sub(r"[123]d$", "", name)


def _given(kind: str, args: tuple, kwargs: Given) -> Given:
    return dict(zip(ARGUMENTS[kind], args, strict=False)) | kwargs


def of_windows(name: str, number: int, args: tuple, kwargs: Given, result: torch.Tensor) -> Iterator[Operation]:
    """Yield a call that lays windows, with the other paddings; none for one sample, and for a padding by a word."""
    kind, count = kind_of(name), int(name[-2])
    given = _given(kind, args, kwargs)
    if given["input"].ndim != count + 2 or isinstance(given.get("padding"), str):
        return
    axes = _axes(kind, given, result.shape[2:])
    present = ways.told(ways.padding(axes))
    margins = ways.paddings(axes, kind == TRANSPOSED)
    others = {text: partial(PADDED[kind], ends) for text, ends in margins.items()}
    if kind == MAXIMUM:
        counted = {present: ways.padding(axes), ways.SAME: ways.same(axes)}
        others |= {f"{text}{ways.COUNTED}": partial(_maximum, 0.0, ends) for text, ends in counted.items()}
    yield Operation(name, number, ways.PADDING, name.replace(AVERAGE, "average_pool"), present, others)


def of_pad(number: int, args: tuple, kwargs: Given) -> Iterator[Operation]:
    """Yield a call that pads with a constant, with other widths before and after."""
    given = dict(zip(("input", "pad", "mode"), args, strict=False)) | kwargs
    widths, mode = given["pad"], given.get("mode", "constant")
    if mode != "constant" or len(widths) % 2:
        return
    present = tuple(zip(widths[-2::-2], widths[::-2], strict=True))
    others = {text: partial(_padded, ends) for text, ends in ways.widths(present).items()}
    yield Operation(PAD, number, ways.PADDING, ways.ZERO_PADDING, ways.told(present), others)


def _axes(kind: str, given: Given, made: Sequence[int]) -> list[Axis]:
    """Return the axes of the image, of which `made` are the sizes of the result, with the windows on them."""
    count, weight = len(made), given.get("weight")
    kernel = _each(given["kernel_size"], count) if weight is None else tuple(weight.shape[2:])
    stride = _each(given.get("stride") or (kernel if weight is None else 1), count)
    dilation, padding = (_each(given.get(name, usual), count) for name, usual in (("dilation", 1), ("padding", 0)))
    numbers = zip(given["input"].shape[2:], made, kernel, stride, dilation, padding, strict=True)
    return [_axis(kind == TRANSPOSED, *each) for each in numbers]


def _each(value: Any, count: int) -> tuple[int, ...]:
    return tuple(value) * (count // len(value)) if isinstance(value, Sequence) else (value,) * count


def _axis(is_transposed: bool, size: int, made: int, kernel: int, stride: int, dilation: int, before: int) -> Axis:
    window = (kernel - 1) * dilation + 1
    if is_transposed:
        return Axis(size, window, stride, before, (size - 1) * stride + window - before - made)
    after = max((made - 1) * stride + window - size - before, before)  # more than before if sizes are rounded up
    return Axis(size, window, stride, before, after)


def _with_margins(x: torch.Tensor, margins: Margins, fill: float = 0.0) -> torch.Tensor:
    """Return an image with these margins, which negative ones take away."""
    return functional.pad(x, [width for pair in reversed(margins) for width in pair], value=fill)


def _convolution(margins: Margins, function: Function, args: tuple, kwargs: Given) -> Any:
    given = _given(CONV, args, kwargs)
    x = _with_margins(given.pop("input"), margins)
    return function(x, **given | {"padding": 0})


def _transposed(margins: Margins, function: Function, args: tuple, kwargs: Given) -> Any:
    given = _given(TRANSPOSED, args, kwargs)
    bias = given.pop("bias", None)
    whole = function(given.pop("input"), **given | {"padding": 0, "output_padding": 0})
    result = _with_margins(whole, tuple((-before, -after) for before, after in margins))
    return result if bias is None else result + bias.reshape(-1, *[1] * len(margins))


def _maximum(fill: float, margins: Margins, function: Function, args: tuple, kwargs: Given) -> Any:
    given = _given(MAXIMUM, args, kwargs)
    x = _with_margins(given.pop("input"), margins, fill)
    return function(x, **given | {"padding": 0, "ceil_mode": False})


def _average(margins: Margins, function: Function, args: tuple, kwargs: Given) -> Any:
    """Return the averages over what of the image is in each window, which is what TensorFlow's are."""
    given = _given(AVERAGE, args, kwargs) | {"padding": 0, "ceil_mode": False}
    x = given.pop("input")
    images = [_with_margins(each, margins) for each in (x, torch.ones_like(x))]
    sums, counts = (function(image, **given) for image in images)
    return sums / counts


PADDED: Mapping[str, Callable[..., Any]] = {
    CONV: _convolution,
    TRANSPOSED: _transposed,
    MAXIMUM: partial(_maximum, -math.inf),
    AVERAGE: _average,
}


def _padded(margins: Margins, function: Function, args: tuple, kwargs: Given) -> Any:
    pad = [width for pair in reversed(margins) for width in pair]
    return function(args[0], pad, *args[2:], **{name: value for name, value in kwargs.items() if name != "pad"})
