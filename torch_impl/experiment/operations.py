"""Other ways to do the ops of a call: paddings that no argument says, other orders of a reshape and of parts.

A TorchFunctionMode sees the functions as the module's code and nn.functional call them, and calls others in place of
them.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.knobs import Knob
from parity.diagnose.experiment.masks import HIDDEN
from parity.diagnose.experiment.operations import Axis, Margins, Operation, Order
from torch_impl.instruments import source
from torch_impl.record import calls

CONV, TRANSPOSED, MAXIMUM, AVERAGE = "conv", "conv_transpose", "max_pool", "avg_pool"
# The arguments of the functions that lay windows; the number of axes follows in their names.
ARGUMENTS = {
    CONV: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    TRANSPOSED: ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
    MAXIMUM: ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    AVERAGE: ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
}
POOLS = (MAXIMUM, AVERAGE)
CODE = "code"  # the kind of what stands in no layer
PAD = ways.PAD  # of nn.functional
RESHAPES = ("reshape", "view", "flatten", "unflatten")
TRANSPOSES = ("permute", "transpose", "swapaxes", "movedim", "moveaxis")
JOINS = ("cat", "concat", "concatenate", "stack")
SPLITS = ("split", "chunk", "unbind", "tensor_split")
GLU = "glu"  # of nn.functional: it splits, and one half is the gate of the other
ROLL = "roll"
# Functions that keep the shape of what they are given, so that they can be left out, as pools can be too.
FUNCTIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign", "hardtanh"),
    *("hardswish", "hardsigmoid", "tanh", "sigmoid", "exp", "log", "sqrt", "square", "abs", "clamp"),
    *("softmax", "log_softmax", "layer_norm", "group_norm", "rms_norm", "normalize"),
    *("clip", "masked_fill", "triu", "tril", "roll", "flip", "neg", "round", "reciprocal", "rsqrt"),
)
SUMS = ("add", "sub", "mul", "minimum", "maximum", "min", "max")  # of two tensors
ATTENTION, SOFTMAX = "scaled_dot_product_attention", "softmax"
ATTENTION_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
KNOWN = (PAD, *RESHAPES, *TRANSPOSES, *JOINS, *SPLITS, GLU, *FUNCTIONS, *SUMS, ATTENTION)
Function = Callable[..., Any]
Given = dict[str, Any]  # the arguments of a function by name


def operations(replay: Callable[[], Any], place: Callable[[], str], is_paused: Callable[[], bool]) -> list[Knob]:
    """Return the ops of `replay`, which calls a module again, that can be done in another way.

    `place` returns the path of the innermost module that is being called, and `is_paused` whether what is running now
    is to be left out.
    """
    variants: list[Operation] = []

    def note(name: str, number: int, function: Function, args: tuple, kwargs: Given) -> Any:
        result = function(*args, **kwargs)
        if not is_paused():
            made = _operations(name, number, args, kwargs, result)
            variants.extend(each._replace(source=source.nearest(), path=place()) for each in made)
        return result

    with calls.tracked(), _Mode(note):
        replay()
    return list(ways.knobs(variants, _doing))


def _doing(changed: ways.Calls) -> "_Mode":
    def do(name: str, number: int, function: Function, args: tuple, kwargs: Given) -> Any:
        variant = changed.get((name, number))
        return variant(function, args, kwargs) if variant else function(*args, **kwargs)

    return _Mode(do)


class _Mode(TorchFunctionMode):
    """Does `do` in place of each function that can be done in another way."""

    def __init__(self, do: Callable[[str, int, Function, tuple, Given], Any]) -> None:
        super().__init__()
        self._do, self._counts = do, Counter[str]()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Given | None = None) -> Any:
        name = getattr(func, "__name__", "")
        if _kind(name) not in ARGUMENTS and name not in KNOWN:
            return func(*args, **(kwargs or {}))
        self._counts[name] += 1
        return self._do(name, self._counts[name], func, args, kwargs or {})


def _kind(name: str) -> str:
    """Return the kind of a function that lays windows, without the number of its axes."""
    return re.sub(r"[123]d$", "", name)


def _given(kind: str, args: tuple, kwargs: Given) -> Given:
    return dict(zip(ARGUMENTS[kind], args, strict=False)) | kwargs


def _operations(name: str, number: int, args: tuple, kwargs: Given, result: Any) -> Iterator[Operation]:
    """Yield a call with the other ways to do it."""
    if name in (*JOINS, *SPLITS):
        yield from _of_parts(name, number, args, result)
        return
    x = args[0] if args else None
    if not isinstance(x, torch.Tensor) or not isinstance(result, torch.Tensor):
        return
    if _kind(name) in ARGUMENTS:
        yield from _of_windows(name, number, _given(_kind(name), args, kwargs), result)
    elif name == PAD:
        yield from _of_pad(number, args, kwargs)
    elif name in RESHAPES:
        others = {order.text: partial(_reordered, order, result.shape) for order in ways.orders(x.shape, result.shape)}
        if others:
            yield Operation(name, number, ways.ORDER, ways.RESHAPE, ways.RESHAPE, others)
    elif name in SUMS:
        both = zip((ways.FIRST, ways.SECOND), range(len(args)), strict=False)
        whole = {text: partial(_alone, at, result.shape) for text, at in both if _may_fill(args[at], result.shape)}
        if len(whole) > 1:
            yield Operation(name, number, ways.SUM, "module", name, whole)
    elif name in TRANSPOSES:
        turned = {order.text: partial(_turned, order) for order in ways.orders(result.shape, result.shape)}
        others = {ways.RESHAPE: lambda function, args, kwargs: args[0].reshape(result.shape), **turned}
        yield Operation(name, number, ways.ORDER, ways.RESHAPE, ways.TRANSPOSE, others)
    elif name == GLU:
        (text,) = ways.arrangements(2)
        yield Operation(name, number, ways.ORDER, ways.SPLIT, "as they are", {text: _other_gate})
    elif name == ROLL:
        yield Operation(name, number, "direction", ROLL, "as it is", {"the other way": _rolled_back})
    elif name == ATTENTION:
        yield Operation(name, number, ways.FUNCTION, CODE, SOFTMAX, {ways.LEFT_OUT: _without_softmax})
    if name in FUNCTIONS or _kind(name) in POOLS:
        yield Operation(
            name, number, ways.FUNCTION, CODE, name, {ways.LEFT_OUT: lambda function, args, kwargs: args[0]}
        )


def _of_parts(name: str, number: int, args: tuple, result: Any) -> Iterator[Operation]:
    """Yield a call that joins tensors or takes one apart, with other orders of the parts.

    What a tensor is taken apart into is exchanged if it is of one shape: code that takes other shapes would fail.
    """
    is_join = name in JOINS
    parts = args[0] if is_join and args else result
    shapes = [part.shape for part in parts] if isinstance(parts, (tuple, list)) else []
    variant, kind = (_joined, ways.JOIN) if is_join else (_apart, ways.SPLIT)
    orders = ways.arrangements(len(shapes)).items()
    others = {text: partial(variant, to) for text, to in orders if is_join or [shapes[each] for each in to] == shapes}
    if others:
        yield Operation(name, number, ways.ORDER, kind, "as they are", others)


def _joined(order: Sequence[int], function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function([args[0][number] for number in order], *args[1:], **kwargs)


def _apart(order: Sequence[int], function: Function, args: tuple, kwargs: Given) -> tuple[torch.Tensor, ...]:
    parts = function(*args, **kwargs)
    return tuple(parts[number] for number in order)


def _other_gate(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    axis = kwargs.get("dim", (*args, -1)[1])
    return function(torch.cat(args[0].chunk(2, axis)[::-1], axis), *args[1:], **kwargs)


def _rolled_back(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    given = dict(zip(("input", "shifts", "dims"), args, strict=False)) | kwargs
    shifts = given.pop("shifts")
    return function(**given, shifts=[-each for each in shifts] if isinstance(shifts, Sequence) else -shifts)


def _without_softmax(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    """Return attention by the scores themselves, with a bias added to them.

    A mask that hides goes with the softmax, as in Keras's layer.
    """
    given = dict(zip(ATTENTION_ARGUMENTS, args, strict=False)) | kwargs
    query, key, value = given["query"], given["key"], given["value"]
    if given.get("enable_gqa"):
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = (given.get("scale") or query.shape[-1] ** -0.5) * (query @ key.mT)
    bias = given.get("attn_mask")
    is_added = bias is not None and bias.is_floating_point() and bias.min() > HIDDEN
    return (scores + bias if is_added else scores) @ value


def _may_fill(value: Any, shape: torch.Size) -> bool:
    """Return whether a value has as many axes as a shape, each as long or of length 1, as positions for a batch are."""
    is_tensor = isinstance(value, torch.Tensor) and value.ndim == len(shape)
    return is_tensor and all(own in (1, whole) for own, whole in zip(value.shape, shape, strict=True))


def _alone(at: int, shape: torch.Size, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return args[at].expand(shape)


def _turned(order: Order, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(*args, **kwargs).swapdims(order.first, order.second)


def _of_windows(name: str, number: int, given: Given, result: torch.Tensor) -> Iterator[Operation]:
    """Yield a call that lays windows, with the other paddings; none for one sample, and for a padding by a word."""
    kind, count = _kind(name), int(name[-2])
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


def _of_pad(number: int, args: tuple, kwargs: Given) -> Iterator[Operation]:
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


def _reordered(order: Order, shape: Sequence[int], function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    """Return a reshape in which two axes are exchanged before or after."""
    if order.is_before:
        return args[0].swapdims(order.first, order.second).reshape(shape)
    turned = [shape[axis] for axis in ways.exchanged(len(shape), order.first, order.second)]
    return args[0].reshape(turned).swapdims(order.first, order.second)
