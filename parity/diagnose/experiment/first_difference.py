"""The first op at which two recorded calls part: what goes into it agrees, what comes out has no counterpart.

Ops are not paired by their names or order, as one framework fuses what the other takes apart. Instead each tensor is
looked for on the other side by its numbers. From the returned tensors that have no counterpart one goes back through
those that have none either, until all that an op takes has one. An op whose own output has no counterpart, while all
that is computed from it has, is another way to the same result; this walk never reaches it.
"""

import itertools
import re
from typing import Final, NamedTuple

from parity.diagnose.experiment import ops
from parity.diagnose.experiment.ops import Recording, Table, Value

FLOAT32: Final = 2.0**-20  # of a number's magnitude: what several roundings in float32 leave
# What ops compute, by their names in either framework without case, version and trailing underscore.
COMPUTED: Final = {
    **dict.fromkeys(("add", "biasadd"), "add"),
    **dict.fromkeys(("sub", "rsub"), "subtract"),
    "mul": "multiply",
    **dict.fromkeys(("div", "realdiv", "divnonan"), "divide"),
    **dict.fromkeys(("mm", "bmm", "matmul", "batchmatmul", "einsum"), "matrix product"),
    "pow": "power",
    **dict.fromkeys(("where", "select", "masked_fill"), "choice"),
    **dict.fromkeys(("cat", "concat", "stack", "pack"), "join"),
    **dict.fromkeys(("index", "gather", "gathernd", "embedding", "index_select"), "lookup"),
}


def plain(name: str) -> str:
    """Return the name of an op without case, version and trailing underscore."""
    return re.sub(r"(v\d+|_)$", "", name.lower()).partition(".")[0]


def computed(name: str) -> str:
    """Return what an op computes, by a name that both frameworks share, or else by its own."""
    return COMPUTED.get(plain(name), plain(name))


class Parting(NamedTuple):
    """The op of one side at which the calls part; `number` is that of the tensor which it returns, its `output`.

    `sources` are the user's lines that made what the op takes; `inputs` are the recorded tensors themselves. `rounds`
    says that float32 holds what the op returns, and not what it takes. `shared` are the inputs that the other side's op
    takes as well, `alone` the numbers of those that it does not take; `constants` are the latter, if neither what the
    module is given nor a weight that has a counterpart is in them, or the output where none is shared; None if
    something is.
    """

    name: str
    number: int
    line: str
    sources: tuple[str, ...]
    inputs: frozenset[int]
    output: Value
    rounds: bool
    shared: tuple[Value, ...] = ()
    alone: tuple[int, ...] = ()
    constants: tuple[Value, ...] | None = None


class Difference(NamedTuple):
    """The first difference; a side is None if it has no further op: it returns what agrees so far.

    `apart` is how far the nearest tensor of the other side is, relative to the largest; None for other sizes. `graphs`
    are what was recorded of both.
    """

    torch: Parting | None
    keras: Parting | None
    apart: float | None
    graphs: "tuple[Graph, Graph]"


class Graph:
    """A recording as a graph, without moves. `end`: the line that makes what is returned; `is_cut`: not all is kept."""

    def __init__(self, recording: Recording) -> None:
        self.ops, self._taken, self.is_cut = recording.calls.ops, set(recording.calls.taken), recording.calls.cut
        self.values = {number: Value(array) for number, array in recording.arrays.items()}
        self.makers = {number: op for op in self.ops if op.kind != "moved" for number in op.outputs}
        self.lines = {number: op.line for op in self.ops for number in op.outputs}  # of what made or moved a tensor
        self._roots: dict[int, int] = {}
        for op in self.ops:
            if op.kind == "moved":
                self._roots[op.outputs[0]] = self.root(op.inputs[0])
        self.end = next((self.lines[number] for number in recording.calls.returned if number in self.lines), "")
        self._returned = [self.root(number) for number in recording.calls.returned]
        self.returned = [number for number in self._returned if number in self.values]
        self.matched: dict[int, set[int]] = {}  # the counterparts of a tensor
        self._agreed: set[int] = set()
        self._apart: set[int] = set()  # the tensors without a counterpart on which what is returned depends

    def root(self, number: int) -> int:
        """Return the number of the tensor that this one is a moved form of."""
        return self._roots.get(number, number)

    def inputs(self, number: int) -> list[int]:
        """Return what the maker of a tensor takes."""
        return list(map(self.root, self.makers[number].inputs))

    def joined(self, number: int) -> list[int]:
        """Return the tensors of floats of which one is put together, in order."""
        return [each for each in self.inputs(number) if each in self.values and not self.values[each].is_integer]

    def joins(self) -> list[int]:
        """Return the tensors without a counterpart that are put together of several."""
        apart = (each for each, op in self.makers.items() if op.kind == "selected" and each not in self.matched)
        return [each for each in apart if each in self.values and len(self.joined(each)) > 1]

    def partings(self) -> list[Parting]:
        """Return the ops from which on what the module returns differs, in the order of their execution."""
        self._agree()
        open_ = [number for number in self._returned if number in self.makers and number not in self.matched]
        while open_:
            number = open_.pop()
            if number not in self._apart:
                self._apart.add(number)
                open_ += [each for each in self.inputs(number) if each not in self._agreed]
        first = [number for number in sorted(self._apart) if self._agreed.issuperset(self.inputs(number))]
        return [self._parting(number) for number in first if number in self.values]

    def beside(self, parting: Parting, other: Parting) -> Parting:
        """Return an op with what it shares with the other side's op, and the constants that it does not."""
        shared = {number for number in parting.inputs if self.matched.get(number, set()) & other.inputs}
        alone = [number for number in parting.inputs - shared if number in self.values]
        constants: tuple[Value, ...] | None = None
        if all(map(self._is_constant, alone)):
            constants = tuple(self.values[number] for number in alone) if shared else (parting.output,)
        values = tuple(self.values[number] for number in shared if number in self.values)
        return parting._replace(shared=values, alone=tuple(alone), constants=constants)

    def _is_constant(self, number: int) -> bool:
        if number in self.matched or number in self._taken:
            return False
        return number not in self.makers or all(map(self._is_constant, self.inputs(number)))

    def is_literal(self, number: int) -> bool:
        """Return whether a tensor is a number that no op returns."""
        return number not in self.makers and number in self.values and self.values[number].size == 1

    def takers(self, number: int) -> list[int]:
        """Return what the ops make that take a tensor."""
        return [each for each in self.makers if number in self.inputs(each)]

    def parts(self, number: int) -> list[int]:
        """Return the parts that are taken of a tensor."""
        return [taker for taker in self.takers(number) if self.makers[taker].kind == "selected"]

    def taken_with(self, number: int) -> set[int]:
        """Return the numbers of what ops take together with a tensor."""
        return {each for taker in self.takers(number) for each in self.inputs(taker)} - {number}

    def made(self, number: int) -> str:
        """Return in words what makes a tensor, and on which line."""
        if number not in self.makers:
            return "what is given"
        return _at_line(self.makers[number].name, self.lines[number])

    def result(self, number: int) -> str:
        """Return in words a tensor that something makes, or that is given."""
        return f"what {self.made(number)} makes" if number in self.makers else self.made(number)

    def apart(self) -> list[int]:
        """Return the numbers of the tensors without a counterpart on which what is returned depends, in order."""
        return sorted(self._apart & self.values.keys())

    def _agree(self) -> None:
        """Note the tensors with a counterpart, and inputs, weights, literals, shapes, masks, parts that need none."""
        given = self.values.keys() - self.makers.keys()
        literals = {number for number in given if self.values[number].size == 1}
        masks = {number for number in given if self.values[number].is_integer or self.values[number].is_plain}
        self._agreed |= {each for op in self.ops for each in map(self.root, op.inputs)} - self.makers.keys()
        for number, op in self.makers.items():
            inputs, value = self.inputs(number), self.values.get(number)
            if value is not None and value.size == 1 and literals.issuperset(inputs):
                literals.add(number)
            if value is not None and masks.issuperset(inputs) and (value.is_integer or value.is_plain):
                masks.add(number)
            is_part = op.kind == "selected" and self._agreed.issuperset(inputs)
            is_none = value is not None and (value.is_shape or (number in masks and value.is_plain))
            if number in self.matched or number in literals or is_part or is_none:
                self._agreed.add(number)

    def _parting(self, number: int) -> Parting:
        op = self.makers[number]
        sources = dict.fromkeys(self.lines[each] for each in op.inputs if self.lines.get(each))
        inputs, output = frozenset(map(self.root, op.inputs)), self.values[number]
        taken = [self.values[each] for each in inputs if each in self.values]
        floats = (each for each in taken if each.array.dtype.kind == "f")
        rounds = output.is_rounded and any(not each.is_rounded and not each.is_plain for each in floats)
        return Parting(op.name, number, op.line, tuple(sources), inputs, output, rounds)


def first_difference(torch: Recording, keras: Recording) -> Difference | None:
    """Return where the calls part first, or None; what float32 cannot see counts only where there is nothing else."""
    return _first_difference(torch, keras, FLOAT32) or _first_difference(torch, keras, ops.RELATIVE)


def _first_difference(torch: Recording, keras: Recording, grain: float) -> Difference | None:
    graphs = ours, theirs = matched(torch, keras, grain)
    here, there = ours.partings(), theirs.partings()
    if not here and not there:
        return None
    first, second = _nearest(here, there, ours)
    beside = ((graph.values[number], op) for graph, op in ((theirs, first), (ours, second)) for number in graph.apart())
    distances = [ops.apart(value, op.output) for value, op in beside if op]
    distance = min((each for each in distances if each is not None), default=None)
    if first and second:
        first, second = ours.beside(first, second), theirs.beside(second, first)
    return Difference(first, second, distance, graphs)


def sentence(difference: Difference) -> str:
    """Return in words where the calls part."""
    torch, keras = difference.torch, difference.keras
    is_same = not (torch and keras) or torch.shared or keras.shared or not (torch.alone and keras.alone)
    agrees, differs = "what goes in agrees, what comes out does not", "each is given what the other side has as well"
    parts = [f"{places(difference)}: {agrees if is_same else f'{differs}, but not the same'}"]
    if difference.apart is not None:
        parts.append(f"the nearest tensors are {difference.apart:.1e} of their largest value apart")
    if side := rounding(difference):
        parts.append(f"{side}'s computes in float32, whatever it is given")
    if torch and keras and _take_opposite_masks(torch, keras, *difference.graphs):
        parts.append("the mask is the other side's opposite")
    if torch and keras and (sources := _sources("torch", torch) + _sources("keras", keras)):
        parts.append("what goes in was made at " + ", ".join(sources))
    if any(graph.is_cut for graph in difference.graphs):
        parts.append("not all tensors were kept, so that the calls may part earlier")
    return "; ".join(parts)


def rounding(difference: Difference) -> str:
    """Return the side whose op computes in float32, where the other side's does not; "" if neither or both do.

    What an op takes may have been rounded before: then what the other side returns tells it, if it is nearly the same.
    """
    partings = {"torch": difference.torch, "keras": difference.keras}
    sides = [side for side, parting in partings.items() if parting and parting.rounds]
    if not sides and difference.apart is not None and difference.apart <= FLOAT32:
        sides = [side for side, parting in partings.items() if parting and parting.output.is_rounded]
    return sides[0] if len(sides) == 1 else ""


def places(difference: Difference) -> str:
    """Return in words with which ops of both sides the calls part, and on which lines those stand."""
    by_side = []
    for op, graph in zip((difference.torch, difference.keras), difference.graphs, strict=True):
        none = "has no such op" + (f" and returns what is made at {graph.end}" if graph.end else "")
        by_side.append(_at_line(op.name, op.line) if op else none)
    return f"torch {by_side[0]}, keras {by_side[1]}"


def _at_line(name: str, line: str) -> str:
    return f"`{name}`" + (f" at {line}" if line else "")


def _sources(side: str, parting: Parting) -> list[str]:
    """Return the lines that made what an op takes, if they are not its own line."""
    return [f"{source} ({side})" for source in parting.sources if source != parting.line]


def matched(torch: Recording, keras: Recording, grain: float = FLOAT32) -> "tuple[Graph, Graph]":
    """Return what was recorded of both sides, with the counterparts, equal to `grain` of their numbers' magnitude."""
    ours, theirs = Graph(torch), Graph(keras)
    table = Table(theirs.values)
    for number, value in ours.values.items():
        for partner in table.equals(value, grain):
            # A computed constant is no counterpart of a literal.
            if (number in ours.makers) == (partner in theirs.makers) or not value.is_plain:
                ours.matched.setdefault(number, set()).add(partner)
                theirs.matched.setdefault(partner, set()).add(number)
    for number, partner in itertools.product(ours.joins(), theirs.joins()):
        # Of parts of other magnitudes, some may differ by rounding alone while the numbers of others are far smaller.
        parts = ours.joined(number), theirs.joined(partner)
        if len(parts[0]) == len(parts[1]) and all(b in ours.matched.get(a, ()) for a, b in zip(*parts, strict=True)):
            ours.matched.setdefault(number, set()).add(partner)
            theirs.matched.setdefault(partner, set()).add(number)
    return ours, theirs


def _nearest(here: list[Parting], there: list[Parting], graph: Graph) -> tuple[Parting | None, Parting | None]:
    """Return the ops of both sides that are most likely each other's: of the same inputs, with outputs close by."""
    if not here or not there:
        return (here[0] if here else None), (there[0] if there else None)

    def rank(pair: tuple[Parting, Parting]) -> tuple[int, float]:
        shared = sum(not pair[1].inputs.isdisjoint(graph.matched.get(number, ())) for number in pair[0].inputs)
        distance = ops.apart(pair[0].output, pair[1].output)
        return -shared, 2.0 if distance is None else distance

    return min(((first, second) for first in here for second in there), key=rank)


def _take_opposite_masks(torch: Parting, keras: Parting, ours: Graph, theirs: Graph) -> bool:
    """Return whether a mask that one op takes is the opposite of one that the other op takes, and equal to none.

    What `masked_fill` fills is what another choice does not take: there opposites do the same.
    """
    if plain(torch.name) == "masked_fill":
        return False
    masks = [ours.values[number] for number in torch.inputs if number in ours.values]
    counterparts = [theirs.values[number] for number in keras.inputs if number in theirs.values]
    return any(ops.opposite(mask, another) for mask in masks for another in counterparts)
