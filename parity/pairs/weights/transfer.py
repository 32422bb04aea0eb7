"""Apply an entry of the weight mapping to values, in both directions.

From torch to Keras, torch's arrays are joined along their first axis (or added), `slice` takes a part of the result,
and this is rearranged by `rearrange`. Then its first axis is permuted by `order`, it is cut along that axis into as
many parts as there are Keras variables, and each part is rearranged once more by `each`. The sizes of named axes follow
from the shapes of both sides, and so do those of the parts: equal ones of variables of one shape, others as each
variable needs. An equal part's first axis is dropped if it has size one after the cut and `each` does not mention it,
as in "d (three heads k) -> three d heads k" for three kernels.

With combine "sum", the Keras variable is the sum of torch's, as for the two biases of an LSTM. With "copy", each of
several Keras variables is the whole torch weight, which torch ties; `rearrange` may then hold one pattern for each
variable, separated by ";".
"""

from collections.abc import Sequence

import numpy as np
from einops import rearrange

from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.pairs.weights import patterns
from parity.pairs.weights.patterns import Shape
from parity.pairs.weights.transfer_plans import Plan, joined, planned, slices_of, title
from parity.trace.mapping import Entry


def fits(entry: Entry, torch: Sequence[Shape], keras: Sequence[Shape]) -> bool:
    """Return whether an entry turns torch's shapes into Keras's."""
    try:
        planned(entry, torch, keras)
    except UsageError:
        return False
    return True


def to_keras(entry: Entry, arrays: list[Array], shapes: Sequence[Shape]) -> list[Array]:
    """Return Keras's values, in the order and `shapes` of its variables. Raises UsageError if the shapes do not fit."""
    plans = planned(entry, [array.shape for array in arrays], shapes)
    whole = _combined(entry, arrays)
    whole = whole[slices_of(entry.slice)] if entry.slice else whole
    return [part for plan in plans for part in _forward(plan, whole)]


def to_torch(
    entry: Entry, arrays: list[Array], shapes: Sequence[Shape], initial: list[Array] | None = None
) -> list[Array]:
    """Return torch's values, in the order of `entry.torch`; `shapes` are those of torch's weights.

    Of copies, the first is taken. A sum cannot be split: its first term takes all that changed, and the others keep
    their `initial` values, as does what is outside of a slice.

    Raises UsageError if the shapes do not fit, or a sum or slice comes without initial values.
    """
    whole = _inverted(entry, arrays, shapes)[0]
    if not entry.is_partial:
        return _split(whole, shapes)
    if initial is None:
        what = "a sum" if entry.combine == "sum" else "a slice"
        raise UsageError(f"{title(entry)}: {what} cannot be converted back to torch without the initial values")
    whole = _filled(entry, whole, _combined(entry, initial))
    if entry.combine != "sum":
        return _split(whole, shapes)
    rest = initial[1:]
    return [whole - sum(rest) if rest else whole, *rest]


def gradients_to_torch(entry: Entry, arrays: list[Array], shapes: Sequence[Shape]) -> list[Array]:
    """Return the gradients of torch's weights, in the order of `entry.torch`.

    By the chain rule, each term of a sum has the whole gradient, the gradients of copies add up, and what is outside of
    a slice has a gradient of zero.
    """
    wholes = _inverted(entry, arrays, shapes)
    whole = sum(wholes[1:], start=wholes[0])
    whole = _filled(entry, whole, np.zeros(joined(entry, shapes), whole.dtype))
    return [whole for _ in shapes] if entry.combine == "sum" else _split(whole, shapes)


def _combined(entry: Entry, arrays: list[Array]) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    return sum(arrays[1:], start=arrays[0]) if entry.combine == "sum" else np.concatenate(arrays)


def _filled(entry: Entry, part: Array, whole: Array) -> Array:
    """Return `whole` with the entry's slice of it replaced by `part`; `part` itself if the entry takes no slice."""
    if not entry.slice:
        return part
    result = np.array(whole, part.dtype)
    result[slices_of(entry.slice)] = part
    return result


def _split(whole: Array, shapes: Sequence[Shape]) -> list[Array]:
    if len(shapes) == 1:
        return [np.ascontiguousarray(whole).reshape(shapes[0])]
    ends = np.cumsum([shape[0] for shape in shapes])[:-1]
    return [np.ascontiguousarray(part) for part in np.split(whole, ends)]


def _forward(plan: Plan, whole: Array) -> list[Array]:
    """Return the parts for Keras's variables of torch's array, of which the entry's slice has been taken."""
    if plan.first:
        whole = rearrange(whole, plan.first, **plan.sizes)
    if plan.order:
        whole = whole[plan.order]
    parts = np.split(whole, np.cumsum(plan.lengths)[:-1]) if len(plan.lengths) > 1 else [whole]
    if plan.drop:
        parts = [part[0] for part in parts]
    if plan.each:
        parts = [rearrange(part, plan.each, **sizes) for part, sizes in zip(parts, plan.each_sizes, strict=True)]
    return [np.ascontiguousarray(part).reshape(part.shape) for part in parts]


def _backward(plan: Plan, parts: list[Array]) -> Array:
    """Invert `_forward`."""
    if plan.each:
        back = patterns.reverse(plan.each)
        parts = [rearrange(part, back, **sizes) for part, sizes in zip(parts, plan.each_sizes, strict=True)]
    if plan.drop:
        parts = [part[np.newaxis] for part in parts]
    whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
    if plan.order:
        whole = whole[np.argsort(plan.order)]
    return rearrange(whole, patterns.reverse(plan.first), **plan.sizes) if plan.first else whole


def _inverted(entry: Entry, arrays: list[Array], shapes: Sequence[Shape]) -> list[Array]:
    """Return torch's joined array; for copies, one array for each Keras variable."""
    plans = planned(entry, shapes, [array.shape for array in arrays])
    if entry.combine == "copy":
        return [_backward(plan, [array]) for plan, array in zip(plans, arrays, strict=True)]
    return [_backward(plans[0], arrays)]
