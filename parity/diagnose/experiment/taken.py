"""Two ops where calls part that take other tensors, other parts of one, or the same in another order.

Each of these the other side has as well. The order is another where both take the same slices of a tensor along one
axis, each side in its own: heads that are tiled rather than repeated.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import ops
from parity.diagnose.experiment.first_difference import COMPUTED, FLOAT32, Difference, Graph, Parting, computed, places

WIRING, OPERANDS, SLICE, ORDER = "module.wiring", "operands.order", "code.slice", "code.order"
TAKEN: Final = "take another tensor, and else the same"
CUMULATIVE: Final = "cum"  # in the names of ops that depend on the order of numbers
SHOWN: Final = 6  # numbers of a constant
MOST_SLICES: Final = 256  # along an axis
MOST_TENSORS: Final = 200  # whose order is compared
LARGEST: Final = 1 << 16  # numbers of one
MOST_BOXES: Final = 256  # places of a part in a tensor


class Named(NamedTuple):
    """A cause that the ops tell: its id, what each side has, and the evidence in words."""

    id: str
    torch: str
    keras: str
    words: str


def exchanged(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two like ops take another tensor, each of which the other side has as well."""
    sides = list(zip((torch, keras), difference.graphs, strict=True))
    kinds = {computed(op.name) for op, _ in sides}
    if len(kinds) > 1 or not kinds <= set(COMPUTED.values()) or not (torch.shared and keras.shared):
        return None
    alone = [op.alone[0] for op, _ in sides if len(op.alone) == 1]
    both = [number for number, (_, graph) in zip(alone, sides, strict=False) if number in graph.matched]
    if len(alone) < 2 or not both:
        return None
    mine, others = (graph.values[number].array for number, (_, graph) in zip(alone, sides, strict=True))
    if mine.shape == others.shape and np.array_equal(mine, others):  # as two masks may, that are no counterparts
        return None
    for (op, graph), (_, other), theirs in zip(sides, sides[::-1], alone[::-1], strict=True):
        if not other.matched.get(theirs, set()).isdisjoint(graph.taken_with(op.number)):
            return None  # taken next: (a * b) * c may be a * (b * c)
    first, second = (graph.result(number) for number, (_, graph) in zip(alone, sides, strict=True))
    words = f"{places(difference)} {TAKEN}" + ("; each side has both" if len(both) > 1 else "")
    return Named(WIRING, first, second, words)


def taken_from(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that each side takes other tensors, or a part of one, and computes nothing; the other side has them all.

    So does who takes the last of a recurrent layer's outputs for its states.
    """
    if torch.shared or keras.shared:
        return None
    ours, theirs = difference.graphs
    for part, another in itertools.product(_put_together(torch, ours), _put_together(keras, theirs)):
        if ours.values[part].size == theirs.values[another].size:
            words = f"{places(difference)} take other tensors; each side has all of them"
            return Named(WIRING, _in_words(ours, part), _in_words(theirs, another), words)
    return None


def sliced(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two ops take other parts of the same tensor."""
    ours, theirs = difference.graphs
    for part, another in itertools.product(_parts(torch, ours), _parts(keras, theirs)):
        wholes = _whole(ours, part), _whole(theirs, another)
        if wholes[1] in ours.matched.get(wholes[0], ()) and another not in ours.matched.get(part, ()):
            boxes = [
                box(graph.values[whole].array, graph.values[cut].array)
                for graph, whole, cut in zip(difference.graphs, wholes, (part, another), strict=True)
            ]
            if all(boxes) and boxes[0] != boxes[1]:
                return Named(SLICE, boxes[0], boxes[1], f"{places(difference)} take other parts of the same tensor")
    ends = (_cut(torch, ours, keras, theirs), _cut(keras, theirs, torch, ours))
    if any(ends) and len(ours.partings()) == len(theirs.partings()) == 1:  # else what differs may be beside it
        values = [end or "all of it" for end in ends]
        return Named(
            SLICE, values[0], values[1], f"{places(difference)}: one takes a part of what the other takes whole"
        )
    return None


def _cut(op: Parting, graph: Graph, other: Parting, beside: Graph) -> str:
    """Return the part that an op takes of a tensor that the other side's takes whole, and keeps whole; else ""."""
    for part in _parts(op, graph):
        whole = _whole(graph, part)
        if whole not in graph.values or other.inputs.isdisjoint(graph.matched.get(whole, ())):
            continue
        # Where further parts are taken of it here alone, nothing is left out.
        is_alone = len(graph.parts(whole)) <= 1 + max(len(beside.parts(each)) for each in graph.matched[whole])
        if is_alone and not beside.parts(other.number):
            return box(graph.values[whole].array, graph.values[part].array)
    return ""


def _parts(op: Parting, graph: Graph) -> list[int]:
    """Return the parts of tensors that an op takes, or that it is."""
    taken = (op.number, *sorted(op.inputs & graph.values.keys()))
    return [number for number in taken if number in graph.makers and graph.makers[number].kind == "selected"]


def _whole(graph: Graph, number: int) -> int:
    """Return the tensor of which one is a part."""
    while number in graph.makers and graph.makers[number].kind == "selected":
        number = graph.inputs(number)[0]
    return number


def _put_together(op: Parting, graph: Graph) -> Iterator[int]:
    """Yield the parts, or what is joined, of tensors that all have counterparts, but have none themselves."""
    for number in _parts(op, graph):
        of = graph.joined(number)
        if of and number not in graph.matched and all(each in graph.matched for each in of):
            yield number


def _in_words(graph: Graph, number: int) -> str:
    makers = dict.fromkeys(map(graph.made, sorted(graph.joined(number))))
    return f"`{graph.makers[number].name}` of what {' and '.join(makers)} returns"


def box(whole: Array, part: Array) -> str:
    """Return in words where a part stands in a tensor; "" if it is no box of its numbers, nor of every few of them."""
    if whole.ndim < part.ndim:  # the part is of a form in which one axis more was cut
        shapes = ([*part.shape[:axis], -1, *part.shape[axis + 1 :]] for axis in range(part.ndim))
        forms = (whole.reshape(shape) for shape in shapes if not whole.size % -math.prod(shape))
        return next(filter(None, (box(form, part) for form in forms)), "")
    ones = itertools.combinations(range(whole.ndim), max(whole.ndim - part.ndim, 0))
    for form in (np.expand_dims(part, axes) for axes in ones):
        starts = [range(size - length + 1) for size, length in zip(whole.shape, form.shape, strict=False)]
        if form.ndim != whole.ndim or math.prod(map(len, starts)) > MOST_BOXES:
            continue
        for start in itertools.product(*starts):
            spans = [(first, first + length) for first, length in zip(start, form.shape, strict=True)]
            if np.array_equal(whole[tuple(itertools.starmap(slice, spans))], form):
                cut = (axis for axis, size in enumerate(whole.shape) if form.shape[axis] < size)
                return ", ".join(f"{spans[axis][0]}:{spans[axis][1]} of axis {axis}" for axis in cut)
        if steps := _steps(whole, form):
            return steps
    return ""


def _steps(whole: Array, part: Array) -> str:
    """Return in words with which step a part takes slices along one axis of a tensor; "" if it does not."""
    axes = [axis for axis, (size, length) in enumerate(zip(whole.shape, part.shape, strict=True)) if size != length]
    if len(axes) != 1 or part.shape[axes[0]] < 2:
        return ""
    slices, taken = np.moveaxis(whole, axes[0], 0), np.moveaxis(part, axes[0], 0)
    for step, start in itertools.product(range(2, len(slices) // len(taken) + 1), range(len(slices))):
        if np.array_equal(slices[start::step][: len(taken)], taken):
            return f"{start}::{step} of axis {axes[0]}"
    return ""


def in_other_order(torch: Parting, keras: Parting, difference: Difference, weights: list[Array]) -> Named | None:
    orders = []
    for mine in torch.shared:
        same_size = [theirs for theirs in keras.shared if theirs.size == mine.size]
        partners = [theirs.array for theirs in same_size if ops.equal(mine, theirs, FLOAT32)]
        if partners and not is_part(mine.array, weights):
            orders.append(min((_order(mine.array, theirs) for theirs in partners), key=lambda order: order is not None))
    if len(orders) < 2 and not any(CUMULATIVE in op.name.lower() for op in (torch, keras)):
        return None  # an op of one tensor does the same with its slices in any order
    if len(unlike := [order for order in orders if order]) != 1 or not (order := unlike[0]).torch.size:
        return None
    axis = f"axis {order.axis} of {list(order.shape)}"
    words = f"{places(difference)} take the same slices along {axis}, in another order"
    return numbers(ORDER, order.torch, order.keras, words)


def ordered(torch: Graph, keras: Graph, weights: Iterable[Array]) -> Named | None:
    """Return the first tensor of torch's of which Keras's side has the slices in another order.

    It explains what differs only where no ops part, as in general either side may sort and put back.
    """
    own = list(weights)
    for number in sorted(torch.values)[:MOST_TENSORS]:
        value, is_made = torch.values[number], number in torch.makers
        partners = sorted(torch.matched.get(number, ()))
        if not 1 < value.size <= LARGEST or (not is_made and is_part(value.array, own)):
            continue
        if any(keras.values[each].size != value.size or (each in keras.makers) != is_made for each in partners):
            continue
        orders = [_order(value.array, keras.values[each].array) for each in partners]
        if (first := next(iter(orders), None)) and all(orders) and first.torch.size and not _is_of_gates(first):
            makers = f"torch {torch.made(number)}, keras {keras.made(partners[0])}"
            words = f"{makers}: the same slices along axis {first.axis} of {list(first.shape)}, in another order"
            return numbers(ORDER, first.torch, first.keras, words)
    return None


def _is_of_gates(order: "_Order") -> bool:
    """Return whether the order is that of a GRU's gates: torch has the reset gate first, Keras the update gate."""
    parts = [np.array_split(numbers, 3) for numbers in (order.torch, order.keras)]
    reset, update, new = parts[0]
    return len(reset) == len(new) and np.array_equal(np.concatenate([update, reset, new]), np.concatenate(parts[1]))


class _Order(NamedTuple):
    """An axis along which slices stand in another order; they are numbered as they come in torch's tensor."""

    shape: tuple[int, ...]
    axis: int
    torch: Array
    keras: Array


def _order(mine: Array, theirs: Array) -> _Order | None:
    """Return how slices are ordered, empty if no axis tells it; None if only the order of axes is another."""
    forms = list(_forms(mine, theirs))
    if any(itertools.starmap(_are_alike, forms)):
        return None
    for pair in forms:
        for axis in range(pair[0].ndim):
            slices: list[Array] = []
            orders = [_numbered(np.moveaxis(array, axis, 0)[:MOST_SLICES], slices) for array in pair]
            if sorted(orders[0]) == sorted(orders[1]):
                return _Order(pair[0].shape, axis, *map(np.array, orders))
    return _Order((), 0, np.array([]), np.array([]))


def _numbered(array: Array, slices: list[Array]) -> list[int]:
    """Return for each slice which of a list it is; those that are new are added to it."""
    numbers = []
    for each in array:
        number = next((number for number, known in enumerate(slices) if _are_alike(known, each)), len(slices))
        slices += [each] if number == len(slices) else []
        numbers.append(number)
    return numbers


def _are_alike(mine: Array, theirs: Array) -> bool:
    """Return whether two tensors are equal, one of which may be held in float32, as a table is."""
    return mine.shape == theirs.shape and bool(
        np.allclose(mine, theirs, rtol=0.0, atol=FLOAT32 * np.abs(mine).max(initial=0.0))
    )


def _forms(mine: Array, theirs: Array) -> Iterator[tuple[Array, Array]]:
    """Yield two tensors in one shape, for each order of the axes of the one with fewer; the other is cut as that is."""
    few, many = sorted((mine, theirs), key=np.ndim)
    for axes in itertools.permutations(range(few.ndim)):
        form = few.transpose(axes)
        if form.shape == many.shape or form.ndim < many.ndim:
            cut = many.reshape(form.shape)
            yield (form, cut) if few is mine else (cut, form)


def is_part(array: Array, weights: Iterable[Array]) -> bool:
    """Return whether all numbers of a tensor stand in one of torch's weights, as those of a packed one do."""
    few = array.ravel()[:64]
    return any(weight.size >= array.size and bool(np.isin(few, weight).all()) for weight in weights if weight.size > 1)


def numbers(id_: str, torch: Array, keras: Array, words: str) -> Named:
    """Return a cause whose values are numbers, shown from where they differ."""
    start = 0
    if torch.size == keras.size > SHOWN and (apart := np.flatnonzero(torch != keras)).size:
        start = int(min(apart[0], torch.size - SHOWN))
    words += f"; shown from element {start} on" if start else ""
    return Named(id_, _shown(torch, start), _shown(keras, start), words)


def _shown(numbers: Array, start: int) -> str:
    few = numbers[start : start + SHOWN]
    listed = ", ".join(f"{number:.6g}" if few.dtype.kind == "f" else str(number) for number in few.tolist())
    return f"[{listed}{f', ... {numbers.size} in all' if numbers.size > SHOWN else ''}]"
