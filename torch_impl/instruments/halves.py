"""Other orders of numbers along an axis: halves one behind the other or in turn, repeats of each element or of all."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.operations import Operation
from torch_impl.instruments.windows import Function, Given

JOINS = ("cat", "concat", "concatenate")
STACK, PART = "stack", "__getitem__"
BEHIND, IN_TURN = "one behind the other", "in turn"
EACH, WHOLE = "each element", "all elements"


def of_halves(name: str, number: int, args: tuple, result: Any) -> Iterator[Operation]:
    """Yield a call that takes the last axis of a tensor apart into two halves, or joins two, with their other order.

    Those of a rotary encoding are the first and the second half of the numbers, or the even and the odd ones.
    """
    present, variant = BEHIND, None
    if not args:  # all are given by name
        return
    if name == PART:
        present, variant = _of_part(*args)
    elif isinstance(parts := args[0] if name in (*JOINS, STACK) else result, (tuple, list)) and len(parts) == 2:
        first, second = (part.shape for part in parts)
        if first != second or not first:
            return
        if name == STACK:
            present, variant = IN_TURN, _behind if result.shape[-1] == 2 else None
        elif name in JOINS:
            variant = _in_turn if result.shape[-1] == 2 * first[-1] else None
        elif isinstance(args[0], torch.Tensor) and args[0].shape[-1] == 2 * first[-1]:
            variant = _alternating
    if variant:
        order = IN_TURN if present == BEHIND else BEHIND
        yield Operation(name, number, ways.ORDER, ways.HALVES, present, {order: variant})


def _of_part(x: Any, index: Any) -> tuple[str, Any]:
    """Return how a part of the last axis is taken that is a half of it, and the other way; none for any other part."""
    last = index[-1] if isinstance(index, tuple) and index else index
    reaches_last = isinstance(index, tuple) and (any(each is Ellipsis for each in index) or len(index) == x.ndim)
    if not isinstance(last, slice) or not reaches_last or x.shape[-1] % 2:
        return BEHIND, None
    size = x.shape[-1]
    taken, before = range(*last.indices(size)), index[:-1]
    halves = {range(size // 2): slice(0, None, 2), range(size // 2, size): slice(1, None, 2)}
    turns = {range(0, size, 2): slice(size // 2), range(1, size, 2): slice(size // 2, None)}
    for present, others in ((BEHIND, halves), (IN_TURN, turns)):
        if taken in others:
            return present, partial(_part, (*before, others[taken]))
    return BEHIND, None


def _part(index: Any, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(args[0], index)


def _alternating(function: Function, args: tuple, kwargs: Given) -> tuple[torch.Tensor, torch.Tensor]:
    return args[0][..., 0::2], args[0][..., 1::2]


def _in_turn(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return torch.stack(tuple(args[0]), -1).flatten(-2)


def _behind(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return torch.cat(tuple(args[0]), -1).unflatten(-1, (-1, 2))


def of_repeats(name: str, number: int, x: torch.Tensor, result: torch.Tensor) -> Iterator[Operation]:
    """Yield a call that repeats what is along an axis, each element or all of them, with the other of the two."""
    longer = [axis for axis, size in enumerate(x.shape) if x.ndim == result.ndim and 1 < size < result.shape[axis]]
    if len(longer) == 1:
        present, order = (EACH, WHOLE) if name == "repeat_interleave" else (WHOLE, EACH)
        yield Operation(name, number, ways.ORDER, "repeat", present, {order: partial(_repeated, longer[0], order)})


def _repeated(axis: int, order: str, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    result, size = function(*args, **kwargs), args[0].shape[axis]
    times = result.shape[axis] // size
    sizes = (size, times) if order == WHOLE else (times, size)
    return result.unflatten(axis, sizes).swapdims(axis, axis + 1).flatten(axis, axis + 1)
