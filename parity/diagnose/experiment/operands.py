"""What two ops do otherwise where two calls part: another constant, tensor, shape, root, or axes of a reduction.

A constant is what stands in the code or is computed there: an offset, a mask, frequencies.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import ops, relations, taken
from parity.diagnose.experiment.first_difference import (
    COMPUTED,
    FLOAT32,
    Difference,
    Graph,
    Parting,
    computed,
    places,
    plain,
)
from parity.diagnose.experiment.operations import LEFT_OUT
from parity.diagnose.experiment.ops import Value
from parity.diagnose.experiment.relations import MOST_SUMS, SCALE
from parity.diagnose.experiment.taken import OPERANDS, Named, is_part, numbers
from parity.diagnose.solve import multiple

REDUCED: Final[Mapping[str, Callable[..., Array]]] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "amax": np.max, "min": np.min, "amin": np.min, "prod": np.prod,
}  # fmt: skip
RANDOM: Final = re.compile("rand|norm|bernoulli|dropout", re.IGNORECASE)
CONSTANT, AXES = "code.tensor", "reduction.axes"
INVERSES: Final[Mapping[str, tuple[str, Callable[[Array], Array]]]] = {
    "subtract": ("-", np.negative), "divide": ("/", np.reciprocal)
}  # fmt: skip
FUNCTION, CORRECTION = "code.function", "reduction.correction"
SPREAD: Final = re.compile("(std|var)")
# Kinds of losses, by parts of the names of ops, without underscores.
LOSSES: Final[Mapping[str, str]] = {
    "binarycrossentropy": "binary cross entropy", "crossentropy": "cross entropy", "nllloss": "cross entropy",
    "mseloss": "squares", "l1loss": "magnitudes",
}  # fmt: skip
FEWEST: Final = 8  # numbers of a sum that tell
ROOTS: Final[Mapping[str, Callable[[Array], Array]]] = {"square root": np.sqrt, "square": np.square}


def named(difference: Difference, weights: Iterable[Array]) -> Named | None:
    """Return what the first ops that part do otherwise, or None; no part of torch's `weights` is a constant."""
    torch, keras, own = difference.torch, difference.keras, list(weights)
    if torch is None or keras is None:
        return _pooled(torch, keras, difference) or relations.continued(difference)
    finders: Sequence[Callable[[Parting, Parting, Difference], Named | None]] = (
        _reduced, _broadcast, _exchanged, relations.weighed, relations.of_classes, _multiplied,
        partial(_constant, weights=own), partial(taken.in_other_order, weights=own), relations.shifted,
        taken.exchanged, _corrected, _function, _pooled,
        taken.sliced, taken.taken_from, relations.aligned, relations.looked_up, relations.given_another,
        _scaled, relations.bypassed, _loss,
    )  # fmt: skip
    return next(filter(None, (find(torch, keras, difference) for find in finders)), None)


def _exchanged(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two like ops take the same two tensors, each in the other's place."""
    sign, inverse = INVERSES.get(computed(torch.name), ("", np.asarray))
    are_same = bool(torch.shared and keras.shared) and not (torch.alone or keras.alone)
    is_like = computed(torch.name) == computed(keras.name)
    if not is_like or not are_same or not ops.equal(Value(inverse(torch.output.array)), keras.output, FLOAT32):
        return None
    return Named(OPERANDS, f"a {sign} b", f"b {sign} a", f"{places(difference)} take the same") if sign else None


def _multiplied(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that both sides multiply the same tensors, and one side by a further number."""
    graphs = difference.graphs
    (mine, factors), (theirs, counterparts) = map(_product, graphs, (torch, keras))
    matched = [next((each for each in counterparts if each in graphs[0].matched.get(own, ())), None) for own in factors]
    if len(factors) < 2 or None in matched or len(set(matched)) != len(counterparts):
        return None
    ratio = multiple(graphs[0].values[mine].array, graphs[1].values[theirs].array)
    if ratio is None or abs(ratio - 1) <= FLOAT32:
        return None
    words = f"{places(difference)} belong to products of the same tensors"
    return Named(SCALE, "as it is", f"{ratio:.6g} times as large", words)


def _product(graph: Graph, op: Parting) -> tuple[int, list[int]]:
    """Return the product to which an op belongs, and the tensors that are multiplied there, without plain numbers."""
    number, products = op.number, {each for each, made in graph.makers.items() if computed(made.name) == "multiply"}
    while taker := min(products.intersection(graph.takers(number), graph.values), default=None):
        number = taker
    factors, open_ = list[int](), [number]
    while open_:
        each = open_.pop()
        open_ += graph.inputs(each) if each in products else []
        factors += [each] if each not in products and each in graph.makers else []
    return number, factors


def _constant(torch: Parting, keras: Parting, difference: Difference, weights: list[Array]) -> Named | None:
    mine, theirs = torch.constants or (), keras.constants or ()
    if len(mine) != 1 or len(theirs) != 1 or any(RANDOM.search(op.name) for op in (torch, keras)):
        return None
    are_made = torch.output is mine[0] and keras.output is theirs[0] and mine[0].size == theirs[0].size
    are_like = computed(torch.name) == computed(keras.name) in COMPUTED.values()
    are_taken = are_like and bool(torch.shared and keras.shared)
    if not (are_made or are_taken) or any(is_part(each.array, weights) for each in (*mine, *theirs)):
        return None
    what = "make other constants" if are_made else "take another constant, and else the same"
    torch_numbers, keras_numbers = mine[0].array.ravel(), theirs[0].array.ravel()
    return numbers(CONSTANT, torch_numbers, keras_numbers, f"{places(difference)} {what}")


class _Reduction(NamedTuple):
    """The function by which an op reduces a tensor, the axes, of which () are all, the tensor, and the result."""

    function: Callable[..., Array]
    axes: tuple[int, ...]
    whole: Array
    result: Array


def _reduced(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that the sides reduce the same tensor over other axes, or by another function."""
    if not (torch.shared and keras.shared):
        return None
    graphs = difference.graphs
    if all(plain(op.name) in REDUCED for op in (torch, keras)):
        sides = zip((torch, keras), graphs, strict=True)
        if len({op.inputs.isdisjoint(graph.taken_with(op.number)) for op, graph in sides}) > 1:
            return None  # one is part of a norm, which takes what is left of the mean
    mine, theirs = _reduction(torch, graphs[0]), _reduction(keras, graphs[1])
    mine, theirs = mine or (theirs and _contraction(torch, keras)), theirs or (mine and _contraction(keras, torch))
    if mine is None or theirs is None or ops.equal(Value(mine.result), Value(theirs.result)):
        return None
    if not ops.equal(Value(mine.whole), Value(theirs.whole), FLOAT32):
        return None
    in_words = ["all axes" if not each else f"axes {', '.join(map(str, each))}" for each in (mine.axes, theirs.axes)]
    if mine.function is theirs.function and in_words[0] != in_words[1]:
        words = f"{places(difference)} reduce the same tensor, in the order of its axes on each side"
        return Named(AXES, in_words[0], in_words[1], words)
    are_alike = len(mine.axes) == len(theirs.axes) and mine.result.size == theirs.result.size  # channels last, or first
    if mine.function is not theirs.function and are_alike:
        names = mine.function.__name__, theirs.function.__name__
        return Named(FUNCTION, *names, f"{places(difference)} reduce the same tensor")
    return None


def _reduction(op: Parting, graph: Graph) -> _Reduction | None:
    """Return how an op reduces what it takes; what squares or multiplies does by its taker, a length sums squares."""
    array = max(op.shared, key=lambda value: value.size).array.astype(np.float64)
    if "norm" in op.name.lower():
        return _over_axes(array * array, op.output.array**2, np.sum)
    name = plain(op.name)
    if name in ("square", "pow") or computed(name) == "multiply":
        for taker in graph.takers(op.number):
            function = REDUCED.get(plain(graph.makers[taker].name))
            if function and taker in graph.values and graph.inputs(taker)[0] == op.number:
                return _over_axes(op.output.array, graph.values[taker].array, function)
    function = REDUCED.get(name)
    return _over_axes(array, op.output.array, function) if function else None


def _pooled(torch: Parting | None, keras: Parting | None, difference: Difference) -> Named | None:
    """Return that one side reduces a tensor of which the other takes a part, or returns one."""
    graphs, sides = difference.graphs, (torch, keras)
    for op, theirs, graph, other in zip(sides, sides[::-1], graphs, graphs[::-1], strict=True):
        if op is None or plain(op.name) not in REDUCED:
            continue
        parts = [other.values[number] for number in other.returned]
        if theirs:
            parts = [theirs.output, *(other.values[number] for number in theirs.inputs if number in other.values)]
        wholes = {each for number in op.inputs for each in graph.matched.get(number, ())} & other.values.keys()
        for whole, part in itertools.product(sorted(wholes), parts):
            if box := taken.box(other.values[whole].array, part.array):
                values = (f"{plain(op.name)} of all", box) if op is sides[0] else (box, f"{plain(op.name)} of all")
                return Named(taken.SLICE, *values, f"{places(difference)}; the other takes a part of the same tensor")
    return None


def _contraction(matmul: Parting, product: Parting) -> _Reduction | None:
    """Return over which axes of a product, which the other side sums over others, a matrix product sums."""
    is_pair = (computed(matmul.name), computed(product.name)) == ("matrix product", "multiply")
    return _over_axes(product.output.array, matmul.output.array, np.sum) if is_pair else None


def _over_axes(whole: Array, reduced: Array, function: Callable[..., Array]) -> _Reduction | None:
    """Return over which axes of a tensor a function gives another one; None if over none."""
    for count in (whole.ndim, *range(1, whole.ndim)):
        for axes in itertools.combinations(range(whole.ndim), count):
            result = np.asarray(function(whole.astype(np.float64), axis=axes))
            if result.size == reduced.size and ops.equal(Value(result), Value(reduced)):
                return _Reduction(function, () if count == whole.ndim else axes, whole, result)
    return None


def _broadcast(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two like ops take the same tensors, of which one side's are of shapes that make a larger result."""
    kinds = {computed(op.name) for op in (torch, keras)}
    shapes = [op.output.array.shape for op in (torch, keras)]
    are_same = bool(torch.shared and keras.shared) and not (torch.alone or keras.alone)
    if not are_same or kinds.isdisjoint(relations.FURTHER) or math.prod(shapes[0]) == math.prod(shapes[1]):
        return None
    are_like = len(kinds) == 1
    if not are_like:  # a loss in one op, and one that is written out
        for side, (op, loss) in enumerate(((torch, keras), (keras, torch))):
            sizes = {value.size for value in op.shared}
            if "loss" in loss.name and len(op.shared) > 1 and len(sizes) == 1 and op.output.size > max(sizes):
                shapes[1 - side], are_like = (*sizes,), True
    if not are_like:
        return None
    return Named("broadcast.shape", str(list(shapes[0])), str(list(shapes[1])), f"{places(difference)} take the same")


def _scaled(_: Parting, __: Parting, difference: Difference) -> Named | None:
    """Return the term of a sum, not of a multiple of one tensor, that one side has times another factor."""
    torch, keras = difference.graphs
    for number, another in itertools.product(torch.apart()[:MOST_SUMS], keras.apart()[:MOST_SUMS]):
        mine, theirs = torch.values[number].array, keras.values[another].array
        are_alike = mine.shape == theirs.shape and mine.any() and mine.dtype.kind == "f" and mine.size >= FEWEST
        if not are_alike or _takers(torch, number).isdisjoint(_takers(keras, another)):
            continue
        rest = theirs.astype(np.float64) - mine
        for each in sorted(torch.matched):
            term = torch.values[each].array
            factor = multiple(term, rest) if term.dtype.kind == "f" else None
            if factor is not None and multiple(term, mine) is None:
                extra = f"{factor:+.6g} times {torch.result(each)} in torch"
                return Named(SCALE, "as it is", extra, f"{places(difference)}: sums are apart by that alone")
    return None


def _loss(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that the sides take losses of other kinds, as their ops are called."""
    names = [plain(op.name).replace("_", "") for op in (torch, keras)]
    kinds = [next((kind for part, kind in LOSSES.items() if part in name), "") for name in names]
    is_other = all(kinds) and kinds[0] != kinds[1]
    return Named("loss.kind", kinds[0], kinds[1], f"{places(difference)} take the same") if is_other else None


def _takers(graph: Graph, number: int) -> set[str]:
    """Return what the ops compute that take a tensor."""
    return {computed(graph.makers[each].name) for each in graph.takers(number)}


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
                # A magnitude is itself the root of a square: it is taken in place of it.
                values = (("abs", "square") if plain(op.name) == "abs" else (what, LEFT_OUT))[:: 1 - 2 * side]
                return Named(FUNCTION, values[0], values[1], f"{places(difference)}: {words}")
    return None
