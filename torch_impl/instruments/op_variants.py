"""Other ways to do an op that needs no window: to order what is along an axis, to choose elements, to average a loss.

Halves are one behind the other or in turn, repeats are of each element or of all; elements are chosen by indices or a
mask along other axes, and the largest k of probabilities are normalised or not; losses average, weigh classes and grow
for large differences otherwise.
"""

import inspect
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.masks import TURNED
from parity.diagnose.experiment.operations import Operation
from torch_impl.instruments.windows import Function, Given

JOINS = ("cat", "concat", "concatenate")
STACK, PART = "stack", "__getitem__"
BEHIND, IN_TURN = "one behind the other", "in turn"
EACH, WHOLE = "each element", "all elements"
# What makes the other order of the halves, by the function that joins them or takes them apart.
OTHER_HALVES: dict[str, Callable[..., Any]] = {
    STACK: lambda function, args, kwargs: torch.cat(tuple(args[0]), -1).unflatten(-1, (-1, 2)),
    "cat": lambda function, args, kwargs: torch.stack(tuple(args[0]), -1).flatten(-2),
    "split": lambda function, args, kwargs: (args[0][..., 0::2], args[0][..., 1::2]),
}


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
            present, variant = IN_TURN, OTHER_HALVES[STACK] if result.shape[-1] == 2 else None
        elif name in JOINS:
            variant = OTHER_HALVES["cat"] if result.shape[-1] == 2 * first[-1] else None
        elif isinstance(args[0], torch.Tensor) and args[0].shape[-1] == 2 * first[-1]:
            variant = OTHER_HALVES["split"]
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
            return present, lambda function, args, kwargs, at=(*before, others[taken]): function(args[0], at)
    return BEHIND, None


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


TOP_K, MASKED_FILL = "topk", "masked_fill"
PACK, PAD_PACKED = "_pack_padded_sequence", "_pad_packed_sequence"
OF_CHOSEN, OF_ALL = "over the chosen", "over all"
CHOSEN_OF = "_chosen_of"  # the attribute of what topk returned: the tensor, the indices, the axis
SUMMED = "_summed"  # the attribute of a sum: how many elements it is of
PACKED = "_packed"  # the attribute of the sizes of packed batches: the number of the call, the lengths


def remembered(name: str, number: int, args: tuple, kwargs: Given, result: Any) -> Any:
    """Return what a function returned, which keeps of what it is: the largest of some numbers, packed sequences."""
    if name == TOP_K:
        setattr(result[0], CHOSEN_OF, (args[0] if args else kwargs["input"], result[1], _axis(args, kwargs)))
    elif name == PACK:
        setattr(result[1], PACKED, (number, args[1]))
    elif name in ("sum", *LOSSES) and isinstance(result, torch.Tensor) and not result.ndim and args:
        setattr(result, SUMMED, (args[0].numel(),))
    return result


def of_chosen(name: str, number: int, args: tuple, kwargs: Given, result: Any) -> Iterator[Operation]:
    """Yield a softmax of what `topk` returned, or a `topk` of probabilities, with the other way to normalise them."""
    if name != TOP_K and args and hasattr(args[0], CHOSEN_OF):
        present, variants = OF_CHOSEN, {OF_ALL: _of_all}
    elif name == TOP_K and args and _are_probabilities(args[0], _axis(args, kwargs)):
        present, variants = OF_ALL, {OF_CHOSEN: _renormalised}
    else:
        return
    yield Operation(name, number, ways.NORMALISATION, "top_k", present, variants)


def _axis(args: tuple, kwargs: Given) -> int:
    return (dict(zip(("input", "k", "dim"), args, strict=False)) | kwargs).get("dim", -1)


def _are_probabilities(x: torch.Tensor, axis: int) -> bool:
    """Return whether numbers are positive, and add up to 1 along an axis."""
    totals = x.sum(axis) if x.is_floating_point() and x.ndim else x.new_zeros(())
    return bool((x >= 0).all() and torch.isclose(totals, torch.ones_like(totals)).all())


def _of_all(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    x, indices, axis = getattr(args[0], CHOSEN_OF)
    return x.softmax(axis).gather(axis, indices)


def _renormalised(function: Function, args: tuple, kwargs: Given) -> Any:
    result = function(*args, **kwargs)
    values = result.values / result.values.sum(_axis(args, kwargs), keepdim=True)
    return torch.return_types.topk((values, result.indices))


def of_lookup(number: int, args: tuple) -> Iterator[Operation]:
    """Yield what is looked up at two indices, as a transition from one state to another, with these exchanged.

    What a mask chooses is yielded with all in place of it.
    """
    mask = args[1] if len(args) > 1 else None
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.ndim and not mask.all():
        whole = {ways.LEFT_OUT: lambda function, args, kwargs: args[0].flatten(0, mask.ndim - 1)}
        yield Operation(PART, number, "missing", "mask", "what it chooses", whole)
    indices = args[1] if len(args) > 1 and isinstance(args[1], tuple) else ()
    if len(indices) == 2 and all(map(_are_indices, indices)) and args[0].shape[0] == args[0].shape[1]:
        exchanged = {"indices exchanged": lambda function, args, kwargs: function(args[0], args[1][::-1])}
        yield Operation(PART, number, ways.ORDER, "gather", "as they are", exchanged)


def of_mask(name: str, number: int, args: tuple, result: torch.Tensor) -> Iterator[Operation]:
    """Yield what is masked along one of the two last axes, as keys in attention are, with the mask along the other.

    And what is filled with another number than 0 with that.
    """
    if name == MASKED_FILL and len(args) > 2 and type(args[2]) is float and args[2]:
        yield Operation(name, number, "fill", "mask", f"{args[2]:g}", {"0": _zeroed})
    at = 1 if name == MASKED_FILL else 0
    mask = args[at] if len(args) > at else None
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.ndim > 1 and result.ndim > 1:
        (rows, columns), sizes = mask.shape[-2:], set(result.shape[-2:])
        if len(sizes) == 1 and sorted((rows, columns)) == [1, *sizes] and mask.ndim == result.ndim:
            yield Operation(name, number, "axis", "mask", "as it is", {TURNED: partial(_turned, at)})


def _zeroed(function: Function, args: tuple, kwargs: Given) -> Any:
    return function(*args[:2], 0.0)


def of_packed(name: str, number: int, args: tuple) -> Iterator[Operation]:
    """Yield a call that packs sequences, as if all had the length of the longest, or that pads them with zeros then."""
    if name == PACK:
        yield Operation(name, number, "missing", "mask", "lengths", {ways.LEFT_OUT: _packed_whole})
    elif packed := getattr(args[1], PACKED, None):
        also = {(PACK, packed[0]): _packed_whole}
        yield Operation(name, number, "missing", "mask", "lengths", {ways.LEFT_OUT: _with_zeros}, also=also)


def _packed_whole(function: Function, args: tuple, kwargs: Given) -> Any:
    x, lengths, is_batch_first = args
    result = function(x, torch.full_like(lengths, x.shape[1 if is_batch_first else 0]), is_batch_first)
    setattr(result[1], PACKED, (0, lengths))
    return result


def _with_zeros(function: Function, args: tuple, kwargs: Given) -> Any:
    """Return sequences that were packed whole, with zeros behind the end of each."""
    padded, whole = function(*args, **kwargs)
    x = padded if args[2] else padded.swapdims(0, 1)
    _, lengths = getattr(args[1], PACKED)
    within = torch.arange(x.shape[1]) < lengths[:, None]
    x = x.where(within[..., None], 0.0)
    return x if args[2] else x.swapdims(0, 1), whole


def _turned(at: int, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(*args[:at], args[at].mT, *args[at + 1 :], **kwargs)


def _are_indices(value: Any) -> bool:
    is_tensor = isinstance(value, torch.Tensor) and value.ndim > 0
    return is_tensor and not value.is_floating_point() and value.dtype != torch.bool


SMOOTH, HUBER = "smooth_l1_loss", "huber_loss"
LOSSES = ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", SMOOTH, HUBER)
OVER_ALL, MEAN, DIVIDED = "over all", "mean", "div"
MOST_COUNTED = 1 << 16  # elements of a mask


def of_loss(name: str, number: int, args: tuple, kwargs: Given) -> Iterator[Operation]:
    """Yield a call of a loss that leaves elements out of its average, or weighs classes, with the other ways."""
    given = _given(name, args, kwargs)
    if name in (SMOOTH, HUBER):  # the one is the other divided by where it begins to be linear
        form, factor = (HUBER, given["beta"]) if name == SMOOTH else (SMOOTH, 1 / given["delta"])
        if factor != 1:
            yield Operation(name, number, "form", SMOOTH, name, {form: partial(_scaled, factor)})
    weight, ignored, of_class = (given.get(each) for each in ("weight", "ignore_index", "pos_weight"))
    is_mean = given["reduction"] == "mean" and not given["target"].is_floating_point()
    leaves_out = ignored is not None and bool((given["target"] == ignored).any())
    if is_mean and (weight is not None or leaves_out):
        present = "over the weights" if weight is not None else "over those that are not ignored"
        yield Operation(name, number, ways.NORMALISATION, "loss", present, {OVER_ALL: _over_all})
    if leaves_out:
        others = {"none": partial(_with, {"ignore_index": -100})}
        yield Operation(name, number, "ignored", "cross_entropy", str(ignored), others)
    if weight is not None and weight.ndim == 1:
        others = {
            ways.LEFT_OUT: partial(_with, {"weight": None}),
            "in reverse": partial(_with, {"weight": weight.flip(0)}),
        }
        yield Operation(name, number, "class_weight", "loss", "as given", others)
    if of_class is not None:
        others = {ways.LEFT_OUT: partial(_with, {"pos_weight": None}), "of class 0": _of_other_class}
        yield Operation(name, number, "class_weight", "loss", "of class 1", others)


def of_average(
    name: str, number: int, args: tuple, kwargs: Given, result: Any, counts: Collection[int]
) -> Iterator[Operation]:
    """Yield a call that averages all that it is given, or divides a sum by a count, with averages over other `counts`.

    A sum over what a mask chooses is divided by how many these are, where the other side divides by all.
    """
    if not isinstance(result, torch.Tensor) or result.ndim or name not in (MEAN, DIVIDED, *LOSSES):
        return
    if name == DIVIDED:
        over = args[1] if len(args) > 1 else 0.0  # a number, or a tensor of one
        over = float(over) if not isinstance(over, torch.Tensor) or over.numel() == 1 else 0.0
        is_average = over in counts
        counts = [*counts, *getattr(args[0], SUMMED, ())]
    else:
        given = {"target": args[0], "reduction": MEAN} if name == MEAN else _given(name, args, kwargs)
        ignored, over = given.get("ignore_index"), given["target"].numel()
        leaves_out = ignored is not None and bool((given["target"] == ignored).any())
        is_average = given["reduction"] == MEAN and given.get("weight") is None and not leaves_out
    others = {f"over {count}": partial(_scaled, over / count) for count in counts if count not in (0, over)}
    if others and is_average:
        yield Operation(name, number, ways.NORMALISATION, "loss", f"over {over:g}", others)


def counted(value: Any) -> Iterator[int]:
    """Yield how many rows a tensor has, and how many of its elements a mask chooses."""
    if isinstance(value, torch.Tensor) and value.ndim:
        yield len(value)
        is_small = value.numel() <= MOST_COUNTED and value.layout == torch.strided  # a sparse one is no mask
        if is_small and (value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all())):
            yield int(value.sum())


def _scaled(factor: float, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return factor * function(*args, **kwargs)


def _given(name: str, args: tuple, kwargs: Given) -> Given:
    """Return all arguments of a loss by name, those that are not given included."""
    bound = inspect.signature(getattr(functional, name)).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _with(changes: Given, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(**_given(function.__name__, args, kwargs) | changes)


def _over_all(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    each = _with({"reduction": "none"}, function, args, kwargs)
    return each.sum() / each.numel()


def _of_other_class(function: Function, args: tuple, kwargs: Given) -> Any:
    """Return the loss with the weight of one class at the other: that of 1 - x and 1 - y is the same with both."""
    given = _given(function.__name__, args, kwargs)
    return function(**given | {"input": -given["input"], "target": 1 - given["target"]})
