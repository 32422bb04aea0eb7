"""What two ops do otherwise where two calls part: another constant, order, tensor, or axes of a reduction, or a root.

A constant is what stands in the code or is computed there: an offset, a mask, frequencies. The order is another where
both take the same slices of a tensor along one axis, each side in its own: heads that are tiled rather than repeated.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import ops
from parity.diagnose.experiment.first_difference import FLOAT32, Difference, Graph, Parting, places
from parity.diagnose.experiment.operations import LEFT_OUT
from parity.diagnose.experiment.ops import Value
from parity.diagnose.experiment.taken import COMPUTED, Named, exchanged, plain, sliced, taken_from

REDUCED: Final[Mapping[str, Callable[..., Array]]] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "amax": np.max, "min": np.min, "amin": np.min, "prod": np.prod,
}  # fmt: skip
RANDOM: Final = re.compile("rand|norm|bernoulli|dropout", re.IGNORECASE)
SHOWN: Final = 6  # numbers of a constant
CONSTANT, AXES, ORDER = "code.tensor", "reduction.axes", "code.order"
FUNCTION, CORRECTION = "code.function", "reduction.correction"
SPREAD: Final = re.compile("(std|var)")
ROOTS: Final[Mapping[str, Callable[[Array], Array]]] = {"square root": np.sqrt, "square": np.square}
MOST_SLICES: Final = 256  # along an axis
MOST_TENSORS: Final = 200  # whose order is compared
LARGEST: Final = 1 << 16  # numbers of one


def named(difference: Difference, weights: Iterable[Array]) -> Named | None:
    """Return what the first ops that part do otherwise; None if they do not tell.

    `weights`: torch's; a part of one is no constant.
    """
    torch, keras, own = difference.torch, difference.keras, list(weights)
    if torch is None or keras is None:
        return ordered(*difference.graphs, own)
    return (
        _reduced(torch, keras, difference)
        or _constant(torch, keras, difference, own)
        or _ordered(torch, keras, difference, own)
        or exchanged(torch, keras, difference)
        or _corrected(torch, keras, difference)
        or _function(torch, keras, difference)
        or sliced(torch, keras, difference)
        or taken_from(torch, keras, difference)
    )


def _constant(torch: Parting, keras: Parting, difference: Difference, weights: list[Array]) -> Named | None:
    kinds = [COMPUTED.get(plain(op.name)) for op in (torch, keras)]
    mine, theirs = torch.constants or (), keras.constants or ()
    if len(mine) != 1 or len(theirs) != 1 or any(RANDOM.search(op.name) for op in (torch, keras)):
        return None
    are_made = torch.output is mine[0] and keras.output is theirs[0]
    are_taken = kinds[0] == kinds[1] is not None and bool(torch.shared and keras.shared)
    if not (are_made or are_taken) or any(_is_part(each.array, weights) for each in (*mine, *theirs)):
        return None
    what = "make other constants" if are_made else "take another constant, and else the same"
    torch_numbers, keras_numbers = mine[0].array.ravel(), theirs[0].array.ravel()
    return _named(CONSTANT, torch_numbers, keras_numbers, f"{places(difference)} {what}")


def _reduced(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    functions = [REDUCED.get(plain(op.name)) for op in (torch, keras)]
    if functions[0] is None or functions[0] is not functions[1] or not (torch.shared and keras.shared):
        return None
    sides = zip((torch, keras), difference.graphs, strict=True)
    if len({op.inputs.isdisjoint(graph.taken_with(op.output)) for op, graph in sides}) > 1:
        return None  # one is part of a norm, which takes what is left of the mean
    axes = [next(_axes(op, functions[0]), None) for op in (torch, keras)]
    in_words = ["all axes" if not each else f"axes {', '.join(map(str, each))}" for each in axes if each is not None]
    if len(set(in_words)) < len(axes):
        return None
    words = f"{places(difference)} reduce the same tensor, in the order of its axes on each side"
    return Named(AXES, in_words[0], in_words[1], words)


def _ordered(torch: Parting, keras: Parting, difference: Difference, weights: list[Array]) -> Named | None:
    orders = []
    for mine in torch.shared:
        same_size = [theirs for theirs in keras.shared if theirs.size == mine.size]
        partners = [theirs.array for theirs in same_size if ops.equal(mine, theirs, FLOAT32)]
        if partners and not _is_part(mine.array, weights):
            orders.append(min((_order(mine.array, theirs) for theirs in partners), key=lambda order: order is not None))
    if len(unlike := [order for order in orders if order]) != 1 or not (order := unlike[0]).torch.size:
        return None
    axis = f"axis {order.axis} of {list(order.shape)}"
    words = f"{places(difference)} take the same slices along {axis}, in another order"
    return _named(ORDER, order.torch, order.keras, words)


def ordered(torch: Graph, keras: Graph, weights: Iterable[Array]) -> Named | None:
    """Return the first tensor of torch's of which Keras's side has the slices in another order.

    It explains what differs only where no ops part, as in general either side may sort and put back.
    """
    own = list(weights)
    for number in sorted(torch.values)[:MOST_TENSORS]:
        value, is_made = torch.values[number], number in torch.makers
        partners = sorted(torch.matched.get(number, ()))
        if not 1 < value.size <= LARGEST or (not is_made and _is_part(value.array, own)):
            continue
        if any(keras.values[each].size != value.size or (each in keras.makers) != is_made for each in partners):
            continue
        orders = [_order(value.array, keras.values[each].array) for each in partners]
        if (first := next(iter(orders), None)) and all(orders) and first.torch.size:
            makers = f"torch {torch.made(number)}, keras {keras.made(partners[0])}"
            words = f"{makers}: the same slices along axis {first.axis} of {list(first.shape)}, in another order"
            return _named(ORDER, first.torch, first.keras, words)
    return None


def _corrected(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that one side's standard deviation or variance is of n - 1, and the other's of n."""
    for side, op in enumerate((torch, keras)):
        own, graph = difference.graphs[side], difference.graphs[1 - side]
        count = max((own.values[each].size for each in op.inputs if each in own.values), default=0) / op.output.size
        if count <= 1 or not (spread := SPREAD.match(op.name.lower())):
            continue
        factor = (count / (count - 1)) ** (0.5 if spread[0] == "std" else 1.0)
        alike = (graph.values[each] for each in graph.apart() if graph.values[each].size == op.output.size)
        divisors = {factor: ("n - 1", "n"), 1 / factor: ("n", "n - 1")}
        for value, (times, both) in itertools.product(alike, divisors.items()):
            if ops.equal(Value(times * value.array), op.output):
                words = f"{places(difference)}: the same but for the divisor, with n = {count:g}"
                return Named(CORRECTION, both[side], both[1 - side], words)
    return None


def _function(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return the function of a number that one side leaves out: the other's result is that of this one's."""
    for side, op in enumerate((torch, keras)):
        graph, name = difference.graphs[1 - side], ("torch", "keras")[side]
        alike = (number for number in graph.apart() if graph.values[number].size == op.output.size)
        for number, (what, function) in itertools.product(alike, ROOTS.items()):
            with np.errstate(all="ignore"):
                result = Value(function(graph.values[number].array))
            if not result.is_plain and ops.equal(result, op.output):
                words = f"`{op.name}` at {op.line} in {name} returns what {graph.made(number)} does, and its {what}"
                values = [what, LEFT_OUT][:: 1 - 2 * side]
                return Named(FUNCTION, values[0], values[1], f"{places(difference)}: {words}")
    return None


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


def _axes(op: Parting, function: Callable[..., Array]) -> Iterator[tuple[int, ...]]:
    """Yield the axes of what an op takes over which it gives what the op returns; () are all."""
    array = max(op.shared, key=lambda value: value.size).array
    every = range(array.ndim)
    for count in (array.ndim, *range(1, array.ndim)):
        for axes in itertools.combinations(every, count):
            reduced = np.asarray(function(array.astype(np.float64), axis=axes))
            if reduced.size == op.output.size and ops.equal(Value(reduced), op.output):
                yield () if count == array.ndim else axes


def _is_part(array: Array, weights: Iterable[Array]) -> bool:
    """Return whether all numbers of a tensor stand in one of torch's weights, as those of a packed one do."""
    few = array.ravel()[:64]
    return any(weight.size >= array.size and bool(np.isin(few, weight).all()) for weight in weights if weight.size > 1)


def _named(id_: str, torch: Array, keras: Array, words: str) -> Named:
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
