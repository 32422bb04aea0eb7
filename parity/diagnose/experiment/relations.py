"""How two ops where calls part are related: given other tensors, along other axes, shifted, or one behind the other."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.core.wording import listed
from parity.diagnose.experiment import ops
from parity.diagnose.experiment.first_difference import FLOAT32, Difference, Graph, Parting, computed, places
from parity.diagnose.experiment.taken import WIRING, Named, numbers
from parity.diagnose.solve import multiple

ALIGNED, LOOKED_UP, SHIFTED = "operands.axes", "lookup.indices", "code.shift"
SCALE, WEIGHTS, CLASSES = "module.scale", "compile.loss_weights", "loss.class_weight"
BINARY: Final = "binary_cross_entropy"  # how names of torch's ops begin
AS_IT_IS: Final = "as it is"
ELEMENTWISE: Final[Mapping[str, Callable[..., Array]]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "power": np.power
}  # fmt: skip
FURTHER: Final = {"add": "plus", "subtract": "minus", "multiply": "times", "divide": "divided by"}
SIGNS: Final = {"add": 1.0, "subtract": -1.0}
FACTORS: Final = (*SIGNS, "multiply", "divide", "neg")
MOST_AXES: Final = 4
MOST_STEPS: Final = 4  # ops that are listed
FARTHEST: Final = 3  # numbers along an axis by which one tensor may be shifted against another
FEWEST: Final = 8  # numbers of a shifted tensor
MOST_SUMS: Final = 8  # of a side that are compared


def continued(difference: Difference) -> Named | None:
    """Return what one side makes of what the other returns."""
    is_torch = difference.keras is None
    if (difference.torch is None) == is_torch:
        return None
    shorter, longer = difference.graphs[::-1] if is_torch else difference.graphs
    returned = {partner for number in shorter.returned for partner in shorter.matched.get(number, ())}
    takers = [number for number in longer.apart() if returned.intersection(longer.inputs(number))]
    if len(takers) != 1:
        return None
    kind, rest = computed(longer.makers[takers[0]].name), set(longer.inputs(takers[0])) - returned
    if kind not in FURTHER or len(rest) != 1:
        return None
    further = f"{FURTHER[kind]} {longer.result(rest.pop())}"
    words = f"{places(difference)}: what one returns is the other's"
    return Named(WIRING, further, AS_IT_IS, words) if is_torch else Named(WIRING, AS_IT_IS, further, words)


def bypassed(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that one side's op takes a tensor of which the other side makes something else before a like op."""
    for op, graph, longer in zip((torch, keras), difference.graphs, difference.graphs[::-1], strict=True):
        for number in longer.apart():
            counterparts = {each: longer.matched.get(each, set()) & op.inputs for each in longer.inputs(number)}
            made = [each for each, partners in counterparts.items() if not partners and each in longer.makers]
            rest = list(op.inputs.difference(*counterparts.values()))
            is_like = computed(longer.makers[number].name) == computed(op.name) and any(counterparts.values())
            if is_like and len(made) == len(rest) == 1 and _is_kept(longer, made[0], graph, rest[0]):
                path = _path(longer, made[0], graph.matched.get(rest[0], set()))
                taker = longer.makers[number]
                if any((op.name, op.line) == (taker.name, taker.line) for op in map(longer.makers.__getitem__, path)):
                    continue  # round a loop, an op takes what it has itself made of anything
                steps = listed([longer.made(each) for each in path], MOST_STEPS)
                values = [f"{steps} of it", AS_IT_IS]
                first, second = values if graph is difference.graphs[1] else values[::-1]
                words = f"{places(difference)}: a like op takes {graph.result(rest[0])} as it is on one side"
                return Named(WIRING, first, second, words) if path else None
    return None


def _is_kept(longer: Graph, made: int, graph: Graph, taken: int) -> bool:
    """Return whether a tensor without a counterpart has as many numbers as the one that is taken in its place."""
    is_known = made in longer.values and taken in graph.values and made not in longer.matched
    return is_known and longer.values[made].size == graph.values[taken].size > 1


def _path(graph: Graph, number: int, origins: Collection[int]) -> list[int]:
    """Return the tensors that are made one of the other from one of the origins on, up to a tensor; [] if none is."""
    if number not in graph.makers or graph.matched.get(number):
        return []
    for each in graph.inputs(number):
        if each in origins:
            return [number]
        if path := _path(graph, each, origins):
            return [*path, number]
    return []


def weighed(_: Parting, __: Parting, difference: Difference) -> Named | None:
    """Return that two sums of the same tensors have other factors of these, not all as many times as large."""
    torch, keras = difference.graphs
    sums = ([each for each in graph.apart() if computed(graph.makers[each].name) in SIGNS] for graph in (torch, keras))
    for number, another in itertools.product(*(each[: -MOST_SUMS - 1 : -1] for each in sums)):  # the last has all terms
        mine, theirs = _factors(torch, number), _factors(keras, another)
        partners = [torch.matched[each] & theirs.keys() for each in mine]
        if not 1 < len(mine) == len(theirs) == len(set().union(*partners)) or any(len(each) != 1 for each in partners):
            continue
        first, second = list(mine.values()), [theirs[each] for (each,) in partners]
        if len({f"{second / first:.6g}" for first, second in zip(first, second, strict=True)}) > 1:
            is_compiled = all(torch.values[each].size == 1 for each in mine) and not keras.lines.get(another)
            made = " and ".join(map(torch.result, mine))
            words = f"{places(difference)}: sums of the same with other factors, in torch of {made}"
            return numbers(WEIGHTS if is_compiled else SCALE, np.array(first), np.array(second), words)
    return None


def _factors(graph: Graph, number: int) -> dict[int, float]:
    """Return the tensors with a counterpart of which another one is the sum, with their factors; {} if it is none."""
    factors, open_ = dict[int, float](), [(number, 1.0)]
    while open_:
        each, factor = open_.pop()
        if each in graph.matched:
            factors[each] = factors.get(each, 0.0) + factor
            continue
        kind = computed(graph.makers[each].name) if each in graph.makers else ""
        terms = [term for term in graph.inputs(each) if not graph.is_literal(term)] if kind in FACTORS else []
        if len(terms) == 2 and kind in SIGNS:
            open_ += zip(terms, (factor, SIGNS[kind] * factor), strict=True)
        elif len(terms) == 1 and {each, *terms} <= graph.values.keys():
            ratio = multiple(graph.values[terms[0]].array, graph.values[each].array) or 0.0
            factor *= ratio if kind not in SIGNS or abs(ratio) == 1 else 0.0  # another one adds a number
            open_.append((terms[0], factor))
        else:
            return {}
    values = [graph.values[each].array for each in factors]
    if number not in graph.values or 0.0 in factors.values() or len({value.shape for value in values}) != 1:
        return {}
    total = np.sum([factor * value for factor, value in zip(factors.values(), values, strict=True)], axis=0)
    return dict(sorted(factors.items())) if ops.equal(ops.Value(total), graph.values[number], FLOAT32) else {}


def of_classes(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that binary cross entropies of the same outputs and targets weigh the two classes otherwise."""
    ours, theirs = difference.graphs
    given = [ours.values[each].array.ravel() for each in ours.inputs(torch.number) if each in ours.values]
    if not torch.name.startswith(BINARY) or len(given) < 2 or given[0].size != given[1].size:
        return None
    outputs, targets = given[:2]
    with np.errstate(all="ignore"):
        logs = -np.logaddexp(0, [-outputs, outputs]) if "logits" in torch.name else np.log([outputs, 1 - outputs])
    losses = np.stack([-targets * logs[0], (targets - 1) * logs[1]], -1)  # of classes 1 and 0
    weights = [1.0, *(float(each.item()) for each in given[2:] if each.size == 1)]
    is_telling = np.isfinite(losses).all() and len(losses) >= FEWEST and bool(losses.any(0).all())
    own = [each for each in weights if is_telling and _is_reduced(losses @ [each, 1.0], torch.output)]
    for number in theirs.apart()[::-1] if own else ():
        value = theirs.values[number].array.astype(np.float64).ravel()
        first, second = np.linalg.lstsq(losses, value, rcond=None)[0] if value.size == len(losses) else (0.0, 0.0)
        is_loss = first * second > 0 and ops.equal(ops.Value(losses @ [first, second]), ops.Value(value), FLOAT32)
        if is_loss and abs(first / second - own[0]) > FLOAT32 * own[0]:
            words = (
                f"{places(difference)}: so weighed are the losses of classes 1 and 0, in keras by {theirs.made(number)}"
            )
            return numbers(CLASSES, np.array([own[0], 1.0]), np.array([first / second, 1.0]), words)
    return None


def _is_reduced(losses: Array, value: ops.Value) -> bool:
    """Return whether a value is the mean of losses, their sum, or the losses themselves."""
    return any(ops.equal(ops.Value(np.asarray(each)), value, FLOAT32) for each in (losses.mean(), losses.sum(), losses))


def given_another(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two like ops are given one tensor each, which the other side has as well, and not the same."""
    sides = list(zip((torch, keras), difference.graphs, strict=True))
    if computed(torch.name) != computed(keras.name) or torch.shared or keras.shared:
        return None
    given = [[number for number in op.alone if graph.values[number].size > 1] for op, graph in sides]
    if any(len(each) != 1 or each[0] not in graph.matched for each, (_, graph) in zip(given, sides, strict=True)):
        return None
    first, second = (graph.result(numbers[0]) for numbers, (_, graph) in zip(given, sides, strict=True))
    return Named(WIRING, first, second, f"{places(difference)} are given other tensors; each side has both")


def looked_up(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that other entries of the same tensor are looked up."""
    if not computed(torch.name) == computed(keras.name) == "lookup" or not (torch.shared and keras.shared):
        return None
    sides = list(zip((torch, keras), difference.graphs, strict=True))
    values = [{number: graph.values[number] for number in op.alone} for op, graph in sides]
    taken = [[number for number, value in own.items() if value.is_integer and value.size > 1] for own in values]
    if any(len(each) != 1 for each in taken) or torch.output.size != keras.output.size:
        return None
    indices = [own[number].array.ravel() for own, (number,) in zip(values, taken, strict=True)]
    made = " and ".join(graph.result(number) for (_, graph), (number,) in zip(sides, taken, strict=True))
    words = f"{places(difference)} look up other entries of it: {made}"
    return numbers(LOOKED_UP, indices[0], indices[1], words)


def shifted(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two like ops are given the same numbers, on one side shifted along an axis."""
    if computed(torch.name) != computed(keras.name):
        return None
    sides = zip((torch, keras), difference.graphs, strict=True)
    ours, others = ([graph.values[number].array for number in op.alone] for op, graph in sides)
    for mine, theirs in itertools.product(ours, others):
        if mine.shape == theirs.shape and any(shifts := (_shift(mine, theirs), _shift(theirs, mine))):
            words = f"{places(difference)} are given the same numbers at other places"
            return Named(SHIFTED, shifts[0] or AS_IT_IS, AS_IT_IS if shifts[0] else shifts[1], words)
    return None


def _shift(mine: Array, theirs: Array) -> str:
    """Return by how much the numbers of the second tensor come later along an axis of the first; "" if they do not."""
    for axis, step in itertools.product(range(mine.ndim), range(1, FARTHEST + 1)):
        later = np.moveaxis(mine, axis, 0)[step:].astype(np.float64)
        earlier = np.moveaxis(theirs, axis, 0)[:-step].astype(np.float64)
        is_enough = len(later) > step and later.size >= FEWEST and np.ptp(later) > 0
        if is_enough and np.allclose(later, earlier, rtol=FLOAT32, atol=FLOAT32 * float(np.abs(later).max())):
            return f"{step} later along axis {axis}"
    return ""


def aligned(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two like ops combine the same two tensors, along other axes of the result."""
    function = ELEMENTWISE.get(computed(torch.name))
    are_same = len(torch.shared) == len(keras.shared) == 2 and not (torch.alone or keras.alone)
    are_like = computed(torch.name) == computed(keras.name) and torch.output.size == keras.output.size
    if not (function and are_same and are_like):
        return None
    graphs = difference.graphs
    mine = sorted(torch.inputs)
    theirs = [min(keras.inputs & graphs[0].matched.get(number, set()), default=-1) for number in mine]
    if len(mine) != 2 or -1 in theirs or len(set(theirs)) != 2:
        return None
    ways = [
        next(_alignments([graph.values[number].array for number in pair], op.output.array, function), None)
        for graph, pair, op in zip(graphs, (mine, theirs), (torch, keras), strict=True)
    ]
    for number, *along in zip(mine, ways[0] or (), ways[1] or (), strict=False):
        if along[0] != along[1]:
            first, second = (f"along axes {', '.join(map(str, axes))}" for axes in along)
            return Named(ALIGNED, first, second, f"{places(difference)} take the same: {graphs[0].result(number)}")
    return None


def _alignments(
    operands: list[Array], result: Array, function: Callable[..., Array]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the axes of a result along which those of its two operands lie; an axis of one number lies nowhere."""
    if result.ndim > MOST_AXES:
        return
    few = [operand.squeeze() for operand in operands]
    for axes in itertools.product(*(itertools.permutations(range(result.ndim), each.ndim) for each in few)):
        lengths = [tuple(result.shape[axis] for axis in along) for along in axes]
        if lengths != [each.shape for each in few]:
            continue
        laid = [_laid(each, along, result.ndim) for each, along in zip(few, axes, strict=True)]
        for pair in (laid, laid[::-1]):
            with np.errstate(all="ignore"):
                made = function(*pair)
            if made.shape == result.shape and np.allclose(made, result, rtol=FLOAT32, equal_nan=True):
                yield axes[0], axes[1]


def _laid(array: Array, along: tuple[int, ...], count: int) -> Array:
    """Return a tensor with its axes along those of another one of so many axes."""
    order = sorted(range(array.ndim), key=lambda axis: along[axis])
    missing = [axis for axis in range(count) if axis not in along]
    return np.expand_dims(array.transpose(order), missing)
