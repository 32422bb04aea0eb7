"""Apply an entry of the weight mapping to values, in both directions.

From torch to Keras, torch's arrays are joined along their first axis (or added), `slice` takes a part of the result,
and this is rearranged by `rearrange`. Then its first axis is permuted by `order`, it is cut along that axis into as
many parts as there are Keras variables, and each part is rearranged once more by `each`. The sizes of named axes follow
from the shapes of both sides, and so do those of the parts: equal ones of variables of one shape, others as each
variable needs. An equal part's first axis is dropped if it has size one after the cut and `each` does not mention it,
as in "d (three heads k) -> three d heads k" for three kernels.

With combine "sum", the Keras variable is the sum of torch's, as for the two biases of an LSTM. With "copy", each of
several Keras variables is the whole torch weight, which torch ties; `rearrange` may then hold one pattern for each
variable, separated by ";". With "square", the Keras variable holds the squares of torch's values, none
of which is negative, as a variance is the square of a standard deviation.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from einops import rearrange

from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.core.wording import count
from parity.pairs.weights import patterns
from parity.pairs.weights.patterns import Equation, Group, Shape
from parity.trace.mapping import Entry

Groups = list[Group]
MARK = "_each"  # appended to the axis names of `each`, which are not those of `rearrange` even where they are equal


class Plan(NamedTuple):
    """How to move values by one entry, with the shapes of both sides known.

    The patterns `first` and `each` have no ellipses ("" moves nothing); `each_sizes` are those of every part, and
    `lengths` the sizes of their first axes. `drop` says whether axis 0 of each part is dropped.
    """

    first: str
    each: str
    sizes: dict[str, int]
    each_sizes: list[dict[str, int]]
    order: list[int]
    drop: bool
    lengths: list[int]


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
    whole = np.square(whole) if entry.combine == "square" else whole
    whole = whole[_slices_of(entry.slice)] if entry.slice else whole
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
    whole = np.sqrt(whole) if entry.combine == "square" else whole
    if not entry.is_partial:
        return _split(whole, shapes)
    if initial is None:
        what = "a sum" if entry.combine == "sum" else "a slice"
        raise UsageError(f"{_title(entry)}: {what} cannot be converted back to torch without the initial values")
    whole = _filled(entry, whole, _combined(entry, initial))
    if entry.combine != "sum":
        return _split(whole, shapes)
    rest = initial[1:]
    return [whole - sum(rest) if rest else whole, *rest]


def gradients_to_torch(entry: Entry, arrays: list[Array], shapes: Sequence[Shape]) -> list[Array]:
    """Return the gradients of torch's weights, in the order of `entry.torch`.

    By the chain rule, each term of a sum has the whole gradient, the gradients of copies add up, and what is outside of
    a slice has a gradient of zero. Raises UsageError for a square, which is for weights that are not trained.
    """
    if entry.combine == "square":
        raise UsageError(f"{_title(entry)}: a square is of statistics, and these weights are trained")
    wholes = _inverted(entry, arrays, shapes)
    whole = sum(wholes[1:], start=wholes[0])
    whole = _filled(entry, whole, np.zeros(_joined(entry, shapes), whole.dtype))
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
    result[_slices_of(entry.slice)] = part
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


def _title(entry: Entry) -> str:
    return f"weights {', '.join(entry.torch)} -> {', '.join(entry.keras)}"


def planned(entry: Entry, torch: Sequence[Shape], keras: Sequence[Shape]) -> list[Plan]:
    """Return one plan for all Keras variables together; for copies, one plan for each. Raises UsageError."""
    try:
        whole = _sliced(entry, _joined(entry, torch))
        if entry.combine != "copy":
            return [_plan(entry, entry.rearrange, whole, keras)]
        single = entry.rearrange.split(";")
        texts = single * len(keras) if len(single) == 1 else single
        if len(texts) != len(keras):
            raise ValueError(f"received {count(len(texts), 'pattern')}, expected 1 or {len(keras)}")
        return [_plan(entry, text.strip(), whole, [shape]) for text, shape in zip(texts, keras, strict=True)]
    except ValueError as error:
        pattern = f" by slice {entry.slice!r}" if entry.slice else ""
        pattern += f" by {entry.rearrange!r}" if entry.rearrange else ""
        pattern += f", each {entry.each!r}" if entry.each else ""
        shapes = " + ".join(map(str, map(tuple, torch))), " + ".join(map(str, map(tuple, keras)))
        what = f"shapes {shapes[0]} do not become {shapes[1]}{pattern}"
        raise UsageError(f"{_title(entry)}: {what}: {error}") from None


def _joined(entry: Entry, shapes: Sequence[Shape]) -> Shape:
    first, *rest = shapes
    if not rest:
        return first
    if entry.combine == "sum":
        if any(shape != first for shape in rest):
            raise ValueError("a sum is of equal shapes, and these differ")
        return first
    if entry.combine == "copy":
        raise ValueError("copies are of one torch weight, and the rule names several")
    if any(shape[1:] != first[1:] for shape in rest) or not all(shapes):
        raise ValueError("arrays are joined along their first axis, so that all other axes must be equal")
    return (sum(shape[0] for shape in shapes), *first[1:])


def _sliced(entry: Entry, whole: Shape) -> Shape:
    """Return the shape of the slice that an entry takes of torch's joined array. Raises ValueError."""
    slices = _slices_of(entry.slice) if entry.slice else ()
    if len(slices) > len(whole):
        raise ValueError(f"slice {entry.slice!r} has {count(len(slices), 'axis')}, but torch's weight has {len(whole)}")
    shape = tuple(len(range(size)[part]) for size, part in zip(whole, slices, strict=False)) + whole[len(slices) :]
    if 0 in shape and 0 not in whole:
        raise ValueError(f"slice {entry.slice!r} leaves nothing of the shape {whole}")
    return shape


def _plan(entry: Entry, text: str, whole: Shape, keras: Sequence[Shape]) -> Plan:
    """Solve for the axes of a pattern `text`, from torch's joined shape to Keras's parts. Raises ValueError."""
    first = patterns.expanded(text or patterns.IDENTITY, len(whole))
    left, right = patterns.split_sides(first)
    # An ellipsis of `each` takes all axes that there are.
    rank = len(right) if "..." in entry.each else len(patterns.TOKEN.findall(entry.each.partition("->")[0]))
    each = patterns.expanded(entry.each, rank) if entry.each else patterns.expanded(patterns.IDENTITY, len(keras[0]))
    entering, leaving = patterns.split_sides(re.sub(r"[A-Za-z_]\w*", lambda name: name[0] + MARK, each))
    axes = _Axes(left, right, entering, leaving)
    solve = _equal_parts if len(set(keras)) == 1 else _unequal_parts
    sizes, each_sizes, lengths = solve(axes, entry.sizes, whole, keras)
    length = sum(lengths) if right else 0
    if entry.order and sorted(entry.order) != list(range(length)):
        raise ValueError(f"order {entry.order} is no permutation of 0 to {length - 1}, the places along the first axis")
    first_sizes = {name: sizes[name] for group in left for name in group}
    drop = len(keras) > 1 and len(entering) == len(right) - 1
    return Plan(text and first, entry.each and each, first_sizes, each_sizes, entry.order, drop, lengths)


class _Axes(NamedTuple):
    """The named axes on both sides of `rearrange` (left, right) and of `each` (entering, leaving; marked)."""

    left: Groups
    right: Groups
    entering: Groups
    leaving: Groups

    def given(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return those of the sizes that the user gives which belong to these axes, marked or not."""
        names = {name for group in self.left + self.leaving for name in group}
        marked = {**sizes, **{name + MARK: size for name, size in sizes.items()}}
        return {name: size for name, size in marked.items() if name in names}

    def each_sizes(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return the sizes of the axes of `each` by their own names."""
        return {name.removesuffix(MARK): sizes[name] for group in self.leaving for name in group}


Solved = tuple[dict[str, int], list[dict[str, int]], list[int]]  # sizes, those of each part, and the parts' lengths


def _equal_parts(axes: _Axes, given: dict[str, int], whole: Shape, keras: Sequence[Shape]) -> Solved:
    """Solve for all axes where the parts have one shape. Raises ValueError."""
    number = len(keras)
    drop = number > 1 and len(axes.entering) == len(axes.right) - 1
    equations = patterns.equations(axes.left, whole) + patterns.equations(axes.leaving, keras[0])
    # The axes before the cut into parts, and those after it.
    right, after = axes.right, [(), *axes.entering] if drop else axes.entering
    if len(right) != len(after) or (number > 1 and not right):
        ends = f"{count(len(right), 'axis')}, but `each` begins with {len(axes.entering)}"
        raise ValueError(f"`rearrange` ends with {ends}")
    factors = [number] + [1] * (len(right) - 1)
    equations += [Equation(left, factor, part) for left, factor, part in zip(right, factors, after, strict=False)]
    sizes = patterns.solve(axes.given(given), equations)
    length = math.prod(sizes[name] for name in axes.right[0]) if axes.right else number
    return sizes, [axes.each_sizes(sizes)] * number, [length // number] * number


def _unequal_parts(axes: _Axes, given: dict[str, int], whole: Shape, keras: Sequence[Shape]) -> Solved:
    """Solve for all axes where the parts have several shapes: each tells how long it is. Raises ValueError."""
    if not axes.right or len(axes.entering) != len(axes.right):
        raise ValueError(
            f"Keras's variables have several shapes, so that `each` must begin with the "
            f"{count(len(axes.right), 'axis')} that `rearrange` ends with, received {len(axes.entering)}"
        )
    marked = {name: size for name, size in axes.given(given).items() if name.endswith(MARK)}
    by_part = [patterns.solve(dict(marked), patterns.equations(axes.leaving, shape)) for shape in keras]
    parts = [tuple(math.prod(sizes[name] for name in group) for group in axes.entering) for sizes in by_part]
    if len({part[1:] for part in parts}) > 1:
        listed = ", ".join(map(str, parts))
        raise ValueError(f"the parts {listed} differ in more than the first axis, along which torch's array is cut")
    lengths = [part[0] for part in parts]
    equations = patterns.equations(axes.left, whole) + patterns.equations(axes.right, (sum(lengths), *parts[0][1:]))
    own = {name: size for name, size in axes.given(given).items() if not name.endswith(MARK)}
    return patterns.solve(own, equations), [axes.each_sizes(sizes) for sizes in by_part], lengths


def _slices_of(text: str) -> tuple[slice, ...]:
    """Return the slices of the first axes that a text such as "2:" or ":, 1:3" gives."""
    ends = ([end.strip() for end in axis.split(":")] for axis in text.split(","))
    return tuple(slice(*(int(end) if end else None for end in axis)) for axis in ends)
