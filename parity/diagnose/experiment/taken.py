"""Two ops where calls part that take other tensors, or other parts of one, each of which the other side has as well."""

import itertools
import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment.first_difference import Difference, Graph, Parting, places

# What ops compute, by their names in either framework without case, version and trailing underscore.
COMPUTED: Final = {
    **dict.fromkeys(("add", "biasadd"), "add"),
    **dict.fromkeys(("sub", "rsub"), "subtract"),
    **dict.fromkeys(("mul",), "multiply"),
    **dict.fromkeys(("div", "realdiv", "divnonan"), "divide"),
    **dict.fromkeys(("mm", "bmm", "matmul", "batchmatmul", "einsum"), "matrix product"),
    **dict.fromkeys(("pow",), "power"),
    **dict.fromkeys(("where", "select"), "choice"),
    **dict.fromkeys(("cat", "concat", "stack", "pack"), "join"),
    **dict.fromkeys(("index", "gather", "gathernd", "embedding", "index_select"), "lookup"),
}
WIRING, SLICE = "module.wiring", "code.slice"
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
    kinds = {COMPUTED.get(plain(op.name)) for op, _ in sides}
    if len(kinds) > 1 or None in kinds or not (torch.shared and keras.shared):
        return None
    if any(len(op.alone) != 1 or op.alone[0] not in graph.matched for op, graph in sides):
        return None
    for (op, graph), (_, other), theirs in zip(sides, sides[::-1], (keras, torch), strict=True):
        if not other.matched[theirs.alone[0]].isdisjoint(graph.taken_with(op.output)):
            return None  # taken next: (a * b) * c may be a * (b * c)
    taken = [graph.made(op.alone[0]) for op, graph in sides]
    words = f"{places(difference)} take another tensor, and else the same; each side has both"
    in_words = [f"what {each} makes" if each.startswith("`") else each for each in taken]
    return Named(WIRING, in_words[0], in_words[1], words)


def taken_from(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that each side takes other tensors, or a part of one, and computes nothing; the other side has them all.

    So does who takes the last of a recurrent layer's outputs for its states.
    """
    if torch.shared or keras.shared:
        return None
    one, other = difference.graphs
    for mine, theirs in itertools.product(_put_together(torch, one), _put_together(keras, other)):
        if one.values[mine].size == other.values[theirs].size:
            words = f"{places(difference)} take other tensors; each side has all of them"
            return Named(WIRING, _in_words(one, mine), _in_words(other, theirs), words)
    return None


def sliced(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    """Return that two ops take other parts of the same tensor."""
    one, other = difference.graphs
    for mine, theirs in itertools.product(_parts(torch, one), _parts(keras, other)):
        wholes = _whole(one, mine), _whole(other, theirs)
        if wholes[1] in one.matched.get(wholes[0], ()) and theirs not in one.matched.get(mine, ()):
            boxes = [
                _box(graph.values[whole].array, graph.values[part].array)
                for graph, whole, part in zip(difference.graphs, wholes, (mine, theirs), strict=True)
            ]
            if all(boxes) and boxes[0] != boxes[1]:
                return Named(SLICE, boxes[0], boxes[1], f"{places(difference)} take other parts of the same tensor")
    return None


def _parts(op: Parting, graph: Graph) -> list[int]:
    """Return the parts of tensors that an op takes, or that it is."""
    own = [number for number in graph.makers if graph.values.get(number) is op.output]
    taken = sorted(op.inputs & graph.values.keys())
    return [number for number in (*own, *taken) if number in graph.makers and graph.makers[number].kind == "selected"]


def _whole(graph: Graph, number: int) -> int:
    """Return the tensor of which one is a part."""
    while number in graph.makers and graph.makers[number].kind == "selected":
        number = graph.inputs(number)[0]
    return number


def _put_together(op: Parting, graph: Graph) -> Iterator[int]:
    """Yield the parts, or what is joined, of tensors that all have counterparts, but have none themselves."""
    for number in _parts(op, graph):
        of = _joined(graph, number)
        if of and number not in graph.matched and all(each in graph.matched for each in of):
            yield number


def _joined(graph: Graph, number: int) -> list[int]:
    """Return the tensors of which one is put together."""
    taken = (each for each in graph.inputs(number) if each in graph.values)
    return sorted(each for each in taken if not graph.values[each].is_integer)


def _in_words(graph: Graph, number: int) -> str:
    makers = dict.fromkeys(map(graph.made, _joined(graph, number)))
    return f"`{graph.makers[number].name}` of what {' and '.join(makers)} returns"


def _box(whole: Array, part: Array) -> str:
    """Return in words where a part stands in a tensor; "" if it is no box of its numbers."""
    ones = itertools.combinations(range(whole.ndim), max(whole.ndim - part.ndim, 0))
    for box in (np.expand_dims(part, axes) for axes in ones):
        starts = [range(size - length + 1) for size, length in zip(whole.shape, box.shape, strict=False)]
        if box.ndim != whole.ndim or math.prod(map(len, starts)) > MOST_BOXES:
            continue
        for start in itertools.product(*starts):
            spans = [(first, first + length) for first, length in zip(start, box.shape, strict=True)]
            if np.array_equal(whole[tuple(itertools.starmap(slice, spans))], box):
                cut = (axis for axis, size in enumerate(whole.shape) if box.shape[axis] < size)
                return ", ".join(f"{spans[axis][0]}:{spans[axis][1]} of axis {axis}" for axis in cut)
    return ""


def plain(name: str) -> str:
    return re.sub(r"(v\d+|_)$", "", name.lower()).partition(".")[0]
