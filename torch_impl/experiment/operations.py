"""Other ways to do the ops of a call: paddings that no argument says, other orders of a reshape and of parts.

A TorchFunctionMode sees the functions as the module's code and nn.functional call them, and calls others in place of
them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.knobs import AS_GIVEN, Knob
from parity.diagnose.experiment.masks import HIDDEN
from parity.diagnose.experiment.operations import Operation, Order
from torch_impl.instruments import call_chain, op_variants, source
from torch_impl.instruments.call_chain import CODE, FUNCTIONS, REPEATS, SIGNED, TRANSPOSES, left_out
from torch_impl.instruments.origins import tensors
from torch_impl.instruments.windows import ARGUMENTS, PAD, POOLS, Function, Given, kind_of, of_pad, of_windows
from torch_impl.record import calls

RESHAPES = ("reshape", "view", "flatten", "unflatten")
JOINS = (*op_variants.JOINS, op_variants.STACK)
SPLITS = ("split", "chunk", "unbind", "tensor_split")
GLU = "glu"  # of nn.functional: it splits, and one half is the gate of the other
ROLL = "roll"
EINSUM = "einsum"
NORMALIZE = ways.NORMALIZE
SUMS = ("add", "sub", "mul", "minimum", "maximum", "min", "max")  # of two tensors
LOGIC = {"__and__": "&", "__or__": "|", "logical_and": "&", "logical_or": "|"}  # of two masks, by sign
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}  # what makes a mask
WHERE, SUB, DETACH = "where", "sub", "detach"
SQUARES = ("square", "pow")
RECURRENT = ("gru", "lstm", "rnn_tanh", "rnn_relu")
ATTENTION, SOFTMAX = "scaled_dot_product_attention", "softmax"
ATTENTION_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def operations(replay: Callable[[], Any], place: Callable[[], str], is_paused: Callable[[], bool]) -> list[Knob]:
    """Return the ops of `replay`, which calls a module again, that can be done in another way.

    `place` returns the path of the innermost module that is being called, and `is_paused` whether what is running now
    is to be left out.
    """
    variants: list[Operation] = []
    calls_by_result: dict[int, call_chain.Call] = {}
    counts: dict[int, None] = {}  # over which a loss may be averaged

    def note(name: str, number: int, function: Function, args: tuple, kwargs: Given) -> Any:
        result = op_variants.remembered(name, number, args, kwargs, function(*args, **kwargs))
        if not is_paused():
            made = list(_operations(name, number, args, kwargs, result))
            counts.update(dict.fromkeys(count for each in args for count in op_variants.counted(each)))
            made += op_variants.of_average(name, number, args, kwargs, result, counts)
            if call := call_chain.called(name, number, function, args, kwargs, result):
                made += call_chain.left_out_or_exchanged(call, calls_by_result)
                calls_by_result[id(result)] = call
            variants.extend(each._replace(source=source.nearest(), path=place()) for each in made)
        return result

    with calls.tracked(), _Mode(note):
        replay()
    return list(ways.knobs(variants, _doing))


def _doing(changed: ways.Calls) -> "_Mode":
    def do(name: str, number: int, function: Function, args: tuple, kwargs: Given) -> Any:
        if variant := changed.get((name, number)):
            return variant(function, args, kwargs)
        return op_variants.remembered(name, number, args, kwargs, function(*args, **kwargs))

    return _Mode(do)


class _Mode(TorchFunctionMode):
    """Does `do` in place of each function that can be done in another way."""

    def __init__(self, do: Callable[[str, int, Function, tuple, Given], Any]) -> None:
        super().__init__()
        self._do, self._counts = do, Counter[str]()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Given | None = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":  # of an attribute, such as a tensor's T
            name = getattr(func.__self__, "__name__", "")
        self._counts[name] += 1
        return self._do(name, self._counts[name], func, args, kwargs or {})


def _operations(name: str, number: int, args: tuple, kwargs: Given, result: Any) -> Iterator[Operation]:
    """Yield a call with the other ways to do it."""
    if name in (*JOINS, *SPLITS, op_variants.PART):
        yield from op_variants.of_halves(name, number, args, result)
    if name in (op_variants.TOP_K, SOFTMAX):
        yield from op_variants.of_chosen(name, number, args, kwargs, result)
    if name == op_variants.PART:
        yield from op_variants.of_lookup(number, args)
    if name in (op_variants.PACK, op_variants.PAD_PACKED):
        yield from op_variants.of_packed(name, number, args)
    if name in (*JOINS, *SPLITS):
        yield from _of_parts(name, number, args, result)
        return
    if name == EINSUM and len(args) > 2:
        others = {f"without operand {at}": partial(_without_operand, at) for at in range(1, len(args))}
        yield Operation(name, number, ways.SUM, "module", name, others)
    yield from _of_state(name, number, args)
    x = args[0] if args else None
    if not isinstance(x, torch.Tensor) or not isinstance(result, torch.Tensor):
        return
    if name in (op_variants.MASKED_FILL, WHERE):
        yield from op_variants.of_mask(name, number, args, result)
    if kind_of(name) in ARGUMENTS:
        yield from of_windows(name, number, args, kwargs, result)
    elif name == PAD:
        yield from of_pad(number, args, kwargs)
    elif name in (*SUMS, *LOGIC) or (name == WHERE and len(args) > 2):
        yield from _of_two(name, number, args, result)
    elif name in COMPARED and result.ndim:
        everything = {ways.LEFT_OUT: lambda function, args, kwargs: torch.ones_like(function(*args, **kwargs))}
        yield Operation(name, number, "missing", "mask", COMPARED[name], everything)
    elif name in op_variants.LOSSES:
        yield from op_variants.of_loss(name, number, args, kwargs)
    elif name == ATTENTION:
        yield Operation(name, number, ways.FUNCTION, CODE, SOFTMAX, {ways.LEFT_OUT: _without_softmax})
    elif name in SQUARES and x.ndim and (name == SQUARES[0] or args[1:] == (2,)):
        yield Operation(name, number, "rms", "layer_norm", "kept", {"subtracted": _of_deviations})
    else:
        yield from _of_order(name, number, args, kwargs, result)
    if name == DETACH and x.requires_grad:
        yield Operation(
            name, number, "stopped", "gradient", name, {ways.LEFT_OUT: lambda function, args, kwargs: args[0]}
        )
    if name in FUNCTIONS or kind_of(name) in POOLS:
        yield Operation(name, number, ways.FUNCTION, CODE, name, {ways.LEFT_OUT: left_out})


def _of_state(name: str, number: int, args: tuple) -> Iterator[Operation]:
    """Yield a recurrent layer that is given a state, as if it began with zeros."""
    if name in RECURRENT:
        at = 1 if isinstance(args[1], tuple) or args[1].is_floating_point() else 2  # behind the sizes of packed batches
        if any(each.any() for each in tensors(args[at])):
            yield Operation(name, number, "missing", "state", AS_GIVEN, {ways.LEFT_OUT: partial(_without_state, at)})


def _without_state(at: int, function: Function, args: tuple, kwargs: Given) -> Any:
    zeros = tree_map(torch.zeros_like, args[at])
    return function(*args[:at], zeros, *args[at + 1 :], **kwargs)


def _of_two(name: str, number: int, args: tuple, result: torch.Tensor) -> Iterator[Operation]:
    """Yield a call that makes one tensor of two, with either alone; a difference or choice with the two exchanged."""
    of_choice = [1, 2] if name == WHERE and args[0].dtype == torch.bool else [0, 2]  # x.where(mask, y) has it between
    chosen = of_choice if name == WHERE else range(len(args))
    both = zip((ways.FIRST, ways.SECOND), chosen, strict=False)
    whole = {text: partial(_alone, at, result.shape) for text, at in both if _may_fill(args[at], result.shape)}
    is_of_two = name == WHERE or (name == SUB and len(args) > 1 and isinstance(args[1], torch.Tensor))
    exchanged = {ways.EXCHANGED: partial(_exchanged, *chosen[:2])}
    whole = (whole if len(whole) > 1 else {}) | (exchanged if is_of_two else {})
    if whole:
        yield Operation(name, number, ways.SUM, "module", (SIGNED | LOGIC).get(name, name), whole)


def _of_order(name: str, number: int, args: tuple, kwargs: Given, result: torch.Tensor) -> Iterator[Operation]:
    """Yield a call that leaves numbers in another order, or computes along an axis, with the other orders or axes."""
    x = args[0]
    if name in RESHAPES:
        orders = {order.text: partial(_reordered, order, result.shape) for order in ways.orders(x.shape, result.shape)}
        if orders:
            yield Operation(name, number, ways.ORDER, ways.RESHAPE, ways.RESHAPE, orders)
    elif name in TRANSPOSES:
        turned = {order.text: partial(_turned, order) for order in ways.orders(result.shape, result.shape)}
        text = ways.LEFT_OUT if x.shape == result.shape else ways.RESHAPE
        orders = {text: lambda function, args, kwargs: args[0].reshape(result.shape), **turned}
        yield Operation(name, number, ways.ORDER, ways.RESHAPE, ways.TRANSPOSE, orders)
    elif name == GLU:
        (text,) = ways.arrangements(2)
        yield Operation(name, number, ways.ORDER, ways.SPLIT, "as they are", {text: _other_gate})
    elif name in REPEATS:
        yield from op_variants.of_repeats(name, number, x, result)
    elif name == ROLL:
        yield Operation(name, number, "direction", ROLL, "as it is", {"the other way": _rolled_back})
    elif name == NORMALIZE:
        axis = (dict(zip(("input", "p", "dim"), args, strict=False)) | kwargs).get("dim", 1) % x.ndim
        axes = {f"axis {at}": partial(_along, at) for at in range(x.ndim) if at != axis}
        yield Operation(name, number, "axis", NORMALIZE, f"axis {axis}", axes)


def _of_parts(name: str, number: int, args: tuple, result: Any) -> Iterator[Operation]:
    """Yield a call that joins tensors or takes one apart, with other orders of the parts.

    What a tensor is taken apart into is exchanged if it is of one shape: code that takes other shapes would fail.
    """
    is_join = name in JOINS
    parts = args[0] if is_join and args else result
    shapes = [part.shape for part in parts] if isinstance(parts, (tuple, list)) else []
    variant, kind = (_joined, ways.JOIN) if is_join else (_apart, ways.SPLIT)
    orders = ways.arrangements(len(shapes)).items() if shapes else ()
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


def _of_deviations(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    """Return squares of what the mean along the last axis is subtracted from, of which the mean is a variance."""
    return function(args[0] - args[0].mean(-1, keepdim=True), *args[1:], **kwargs)


def _without_operand(at: int, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(*args[:at], torch.ones_like(args[at]), *args[at + 1 :], **kwargs)


def _along(axis: int, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(*args[:2], **kwargs | {"dim": axis})


def _without_softmax(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    """Return attention by the scores, and a bias; a mask that hides goes with the softmax, as in Keras's layer."""
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


def _exchanged(first: int, second: int, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    given = list(args)
    given[first], given[second] = args[second], args[first]
    return function(*given, **kwargs)


def _turned(order: Order, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(*args, **kwargs).permute(order.axes)


def _reordered(order: Order, shape: Sequence[int], function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    """Return a reshape in which axes are in another order before, or two exchanged after it."""
    if order.is_before:
        return args[0].permute(order.axes).reshape(shape)
    return args[0].reshape([shape[axis] for axis in order.axes]).permute(order.axes)  # two are exchanged, and back
