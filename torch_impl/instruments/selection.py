"""Other ways to choose: by indices or a mask along other axes; of probabilities the largest k, normalised or not."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.operations import Operation
from torch_impl.instruments.halves import PART
from torch_impl.instruments.windows import Function, Given

TOP_K, MASKED_FILL = "topk", "masked_fill"
OF_CHOSEN, OF_ALL = "over the chosen", "over all"
CHOSEN_OF = "_chosen_of"  # the attribute of what topk returned: the tensor, the indices, the axis


def remembered(name: str, args: tuple, kwargs: Given, result: Any) -> Any:
    """Return what a function returned, which keeps of which numbers it has the largest if it is `topk`."""
    if name == TOP_K:
        setattr(result[0], CHOSEN_OF, (args[0] if args else kwargs["input"], result[1], _axis(args, kwargs)))
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
    """Yield what is looked up at two indices, as a transition from one state to another, with these exchanged."""
    indices = args[1] if len(args) > 1 and isinstance(args[1], tuple) else ()
    if len(indices) == 2 and all(map(_are_indices, indices)) and args[0].shape[0] == args[0].shape[1]:
        yield Operation(PART, number, ways.ORDER, "gather", "as they are", {"indices exchanged": _exchanged})


def of_mask(name: str, number: int, args: tuple, result: torch.Tensor) -> Iterator[Operation]:
    """Yield what is masked along one of the two last axes, as keys in attention are, with the mask along the other."""
    at = 1 if name == MASKED_FILL else 0
    mask = args[at] if len(args) > at else None
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.ndim > 1 and result.ndim > 1:
        (rows, columns), sizes = mask.shape[-2:], set(result.shape[-2:])
        if len(sizes) == 1 and sorted((rows, columns)) == [1, *sizes] and mask.ndim == result.ndim:
            yield Operation(name, number, "axis", "mask", "as it is", {"along the other axis": partial(_turned, at)})


def _turned(at: int, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(*args[:at], args[at].mT, *args[at + 1 :], **kwargs)


def _are_indices(value: Any) -> bool:
    is_tensor = isinstance(value, torch.Tensor) and value.ndim > 0
    return is_tensor and not value.is_floating_point() and value.dtype != torch.bool


def _exchanged(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(args[0], args[1][::-1])
