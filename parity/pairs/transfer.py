"""What an entry of the mapping does to values, both ways: torch's arrays to Keras's, and back.

torch's arrays are joined along their first axis (or added), rearranged, the first axis is put in another
`order`, cut into as many equal parts as there are Keras variables, and each part is rearranged once more
(`each`). Sizes of named axes follow from the shapes of both sides. A part's first axis is dropped where the
pattern names it alone and the cut left one of it, as in "d (three heads k) -> three d heads k" for three kernels.

combine "sum": the Keras variable is the sum of torch's, as an LSTM's two biases. "copy": each of several Keras
variables is the whole torch weight, which torch ties; `rearrange` may then hold a pattern for each, with ";" between.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from einops import rearrange

from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.pairs import patterns
from parity.pairs.patterns import Equation, Group, Shape
from parity.trace.mapping import Entry

Groups = list[Group]
MARK = "_each"


class Way(NamedTuple):
    """An entry with the shapes of both sides known: patterns without ellipses, sizes, and whether axis 0 is dropped."""

    first: str
    each: str
    sizes: dict[str, int]
    each_sizes: dict[str, int]
    order: list[int]
    drop: bool
    parts: int


def check(entry: Entry, torch: Sequence[Shape], keras: Sequence[Shape]) -> None:
    """Raises UsageError if the entry does not turn arrays of these shapes into those."""
    _ways(entry, torch, keras)


def fits(entry: Entry, torch: Sequence[Shape], keras: Sequence[Shape]) -> bool:
    """Whether the entry turns arrays of these shapes into those."""
    try:
        check(entry, torch, keras)
    except UsageError:
        return False
    return True


def to_keras(entry: Entry, arrays: list[Array], shapes: Sequence[Shape]) -> list[Array]:
    """Keras's values, in the order of entry.keras. Raises UsageError where shapes do not fit."""
    ways = _ways(entry, [array.shape for array in arrays], shapes)
    whole = _combined(entry, arrays)
    return [part for way in ways for part in _forward(way, whole)]


def to_torch(
    entry: Entry, arrays: list[Array], shapes: Sequence[Shape], initial: list[Array] | None = None
) -> list[Array]:
    """torch's values, in the order of entry.torch; of copies the first counts.

    Of a sum the first of torch's takes all that changed: the others keep their initial values.
    """
    whole = _back(entry, arrays, shapes)[0]
    if entry.combine != "sum":
        return _split(whole, shapes)
    if initial is None:
        raise UsageError(f"{_named(entry)}: a sum has no way back without the initial values")
    rest = initial[1:]
    return [whole - sum(rest) if rest else whole, *rest]


def gradients_to_torch(entry: Entry, arrays: list[Array], shapes: Sequence[Shape]) -> list[Array]:
    """Gradients of torch's weights: of a sum each has the whole, of copies they add up."""
    wholes = _back(entry, arrays, shapes)
    if entry.combine == "sum":
        return [wholes[0] for _ in shapes]
    return _split(sum(wholes[1:], start=wholes[0]), shapes)


def _combined(entry: Entry, arrays: list[Array]) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    return sum(arrays[1:], start=arrays[0]) if entry.combine == "sum" else np.concatenate(arrays)


def _split(whole: Array, shapes: Sequence[Shape]) -> list[Array]:
    if len(shapes) == 1:
        return [np.ascontiguousarray(whole).reshape(shapes[0])]
    ends = np.cumsum([shape[0] for shape in shapes])[:-1]
    return [np.ascontiguousarray(part) for part in np.split(whole, ends)]


def _forward(way: Way, whole: Array) -> list[Array]:
    if way.first:
        whole = rearrange(whole, way.first, **way.sizes)
    if way.order:
        whole = whole[way.order]
    parts = np.split(whole, way.parts) if way.parts > 1 else [whole]
    if way.drop:
        parts = [part[0] for part in parts]
    if way.each:
        parts = [rearrange(part, way.each, **way.each_sizes) for part in parts]
    return [np.ascontiguousarray(part).reshape(part.shape) for part in parts]


def _backward(way: Way, parts: list[Array]) -> Array:
    """The inverse of `_forward`."""
    if way.each:
        parts = [rearrange(part, patterns.reverse(way.each), **way.each_sizes) for part in parts]
    if way.drop:
        parts = [part[np.newaxis] for part in parts]
    whole = np.concatenate(parts) if way.parts > 1 else parts[0]
    if way.order:
        whole = whole[np.argsort(way.order)]
    return rearrange(whole, patterns.reverse(way.first), **way.sizes) if way.first else whole


def _back(entry: Entry, arrays: list[Array], shapes: Sequence[Shape]) -> list[Array]:
    """torch's whole array; of copies one for each."""
    ways = _ways(entry, shapes, [array.shape for array in arrays])
    if entry.combine == "copy":
        return [_backward(way, [array]) for way, array in zip(ways, arrays, strict=True)]
    return [_backward(ways[0], arrays)]


def _named(entry: Entry) -> str:
    return f"weights {', '.join(entry.torch)} -> {', '.join(entry.keras)}"


def _mistake(entry: Entry, torch: Sequence[Shape], keras: Sequence[Shape], why: str) -> UsageError:
    pattern = f" by {entry.rearrange!r}" if entry.rearrange else ""
    each = f", each {entry.each!r}" if entry.each else ""
    shapes = " + ".join(map(str, map(tuple, torch))), " + ".join(map(str, map(tuple, keras)))
    return UsageError(f"{_named(entry)}: shapes {shapes[0]} do not become {shapes[1]}{pattern}{each}: {why}")


def _ways(entry: Entry, torch: Sequence[Shape], keras: Sequence[Shape]) -> list[Way]:
    """One for all Keras variables; of copies one for each. Raises UsageError."""
    try:
        whole = _joined(entry, torch)
        if entry.combine != "copy":
            return [_way(entry, entry.rearrange, whole, keras)]
        single = entry.rearrange.split(";")
        texts = single * len(keras) if len(single) == 1 else single
        if len(texts) != len(keras):
            raise ValueError(f"received {len(texts)} patterns, expected 1 or {len(keras)}")
        return [_way(entry, text.strip(), whole, [shape]) for text, shape in zip(texts, keras, strict=True)]
    except ValueError as error:
        raise _mistake(entry, torch, keras, str(error)) from None


def _joined(entry: Entry, shapes: Sequence[Shape]) -> Shape:
    first, *rest = shapes
    if not rest:
        return first
    if entry.combine == "sum":
        if any(shape != first for shape in rest):
            raise ValueError("a sum is of equal shapes")
        return first
    if entry.combine == "copy":
        raise ValueError("copies are of one torch weight")
    if any(shape[1:] != first[1:] for shape in rest) or not all(shapes):
        raise ValueError("arrays are joined along their first axis, and equal in the others")
    return (sum(shape[0] for shape in shapes), *first[1:])


def _way(entry: Entry, text: str, whole: Shape, keras: Sequence[Shape]) -> Way:
    """Solve for the sizes of all named axes. Raises ValueError."""
    count, result = len(keras), keras[0]
    if any(shape != result for shape in keras):
        raise ValueError("the parts of an equal cut have one shape")
    first = patterns.expanded(text, len(whole)) if text else _identity(len(whole))
    left, right = patterns.halves(first)
    each = patterns.expanded(entry.each, _each_rank(entry.each, right)) if entry.each else _identity(len(result))
    entering, leaving = patterns.halves(_marked(each))
    drop = count > 1 and len(entering) == len(right) - 1
    said = patterns.equations(left, whole) + patterns.equations(leaving, result) + _cut(right, entering, count, drop)
    known = {**entry.sizes, **{name + MARK: size for name, size in entry.sizes.items()}}
    names = {name for group in left + leaving for name in group}
    sizes = patterns.solve({name: size for name, size in known.items() if name in names}, said)
    _check_order(entry.order, math.prod(sizes[name] for name in right[0]) if right else 0)
    first_sizes = {name: sizes[name] for group in left for name in group}
    each_sizes = {name.removesuffix(MARK): sizes[name] for group in leaving for name in group}
    return Way(text and first, entry.each and each, first_sizes, each_sizes, entry.order, drop, count)


def _identity(rank: int) -> str:
    axes = " ".join(f"axis{number}" for number in range(rank))
    return f"{axes} -> {axes}"


def _each_rank(each: str, right: Groups) -> int:
    """How many axes go into `each`: all, or all but the first where it is dropped; an ellipsis takes all there are."""
    named = len(patterns.TOKEN.findall(each.partition("->")[0]))
    return len(right) if "..." in each else named


def _marked(each: str) -> str:
    """Its axes are not those of the first pattern, whatever their names."""
    return re.sub(r"[A-Za-z_]\w*", lambda name: name[0] + MARK, each)


def _cut(right: Groups, entering: Groups, count: int, drop: bool) -> list[Equation]:
    """What follows from the cut for the axes before it and behind it. Raises ValueError."""
    behind = [(), *entering] if drop else entering
    if len(right) != len(behind) or (count > 1 and not right):
        raise ValueError(f"{len(right)} axes become {len(entering)}")
    factors = [count] + [1] * (len(right) - 1)
    return [Equation(one, factor, other) for one, factor, other in zip(right, factors, behind, strict=False)]


def _check_order(order: list[int], length: int) -> None:
    if order and sorted(order) != list(range(length)):
        raise ValueError(f"order {order} is no permutation of the first axis, which has {length}")
