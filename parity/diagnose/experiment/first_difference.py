"""The first op at which two recorded calls part: what goes into it agrees, what comes out has no counterpart.

Ops are not paired by their names or order, as one framework fuses what the other takes apart. Instead each tensor is
looked for on the other side by its numbers. From the returned tensors that have no counterpart one goes back through
those that have none either, until all that an op takes has one. An op whose own output has no counterpart, while all
that is computed from it has, is another way to the same result; this walk never reaches it.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from parity.diagnose.experiment import values
from parity.diagnose.experiment.ops import Op, Recording
from parity.diagnose.experiment.values import Value


class Parting(NamedTuple):
    """The op of one side at which the calls part.

    `sources` are the user's lines that made what the op takes; `inputs` are the recorded tensors themselves.
    """

    name: str
    line: str
    sources: tuple[str, ...]
    inputs: frozenset[int]
    output: Value


class Difference(NamedTuple):
    """The first difference; a side is None if it has no further op: it returns what agrees so far."""

    torch: Parting | None
    keras: Parting | None
    apart: float | None  # from the nearest tensor of the other side, relative to the largest; None for other sizes
    opposite_masks: bool  # what the two ops take is alike, except that one mask is the other's opposite
    cut: bool  # not all tensors were kept; a later one may have parted already


class _Side:
    """A recording as a graph. Moved tensors are taken for what they are made of."""

    def __init__(self, recording: Recording) -> None:
        self.ops = recording.calls.ops
        self.roots: dict[int, int] = {}
        self.makers: dict[int, Op] = {}
        self.lines: dict[int, str] = {}  # the line that made or last moved a tensor
        for op in self.ops:
            for number in op.outputs:
                self.lines[number] = op.line
                if op.kind == "moved":
                    self.roots[number] = self.root(op.inputs[0])
                else:
                    self.makers[number] = op
        self.values = {number: Value(array) for number, array in recording.arrays.items()}
        self.returned = [self.root(number) for number in recording.calls.returned]
        self.matched: dict[int, set[int]] = {}  # the counterparts of a tensor
        self.apart: set[int] = set()  # the tensors without a counterpart on which what is returned depends

    def root(self, number: int) -> int:
        """Return the number of the tensor that this one is a moved form of."""
        return self.roots.get(number, number)

    def agrees(self, number: int) -> bool:
        """Return whether a tensor has a counterpart, or is nothing that could have one.

        The latter are inputs, weights, literals, shapes, masks, and parts of tensors that agree.
        """
        if number not in self.makers or number in self.matched:
            return True
        value, op = self.values.get(number), self.makers[number]
        if value is None:
            return False
        if value.is_shape or self._is_literal(number) or (value.is_plain and self._is_mask(number)):
            return True
        return op.kind == "selected" and all(self.agrees(self.root(each)) for each in op.inputs)

    def _is_literal(self, number: int) -> bool:
        """Return whether a tensor is one number, made of such numbers alone, as by a cast."""
        value = self.values.get(number)
        if value is None or value.size != 1 or number not in self.makers:
            return value is not None and value.size == 1
        return all(map(self._is_literal, map(self.root, self.makers[number].inputs)))

    def _is_mask(self, number: int) -> bool:
        """Return whether a tensor is made of integers and masks alone, and is one."""
        value = self.values.get(number)
        if value is None or not (value.is_integer or value.is_plain):
            return False
        return number not in self.makers or all(map(self._is_mask, map(self.root, self.makers[number].inputs)))

    def partings(self) -> list[Parting]:
        """Return the ops from which on what the module returns differs, in the order of their execution."""
        open_ = [number for number in self.returned if number in self.makers and number not in self.matched]
        while open_:
            number = open_.pop()
            if number not in self.apart:
                self.apart.add(number)
                open_ += [root for root in map(self.root, self.makers[number].inputs) if not self.agrees(root)]
        return [
            self._parting(number) for number in sorted(self.apart) if number in self.values and self._starts(number)
        ]

    def nearest(self, output: Value) -> float:
        """Return how far the nearest tensor without a counterpart is; infinite if there is none of this size."""
        distances = (values.apart(self.values[number], output) for number in self.apart if number in self.values)
        return min((distance for distance in distances if distance is not None), default=math.inf)

    def _starts(self, number: int) -> bool:
        """Return whether all that the maker of a tensor takes agrees."""
        return all(self.agrees(self.root(each)) for each in self.makers[number].inputs)

    def _parting(self, number: int) -> Parting:
        op = self.makers[number]
        sources = dict.fromkeys(self.lines[each] for each in op.inputs if self.lines.get(each))
        inputs = frozenset(map(self.root, op.inputs))
        return Parting(op.name, op.line, tuple(sources), inputs, self.values[number])


def first_difference(torch: Recording, keras: Recording) -> Difference | None:
    """Return where the calls part first; None if all that both return has a counterpart."""
    one, other = _Side(torch), _Side(keras)
    _match(one, other)
    here, there = one.partings(), other.partings()
    if not here and not there:
        return None
    first, second = _nearest(here, there, one)
    distances = [side.nearest(op.output) for side, op in ((other, first), (one, second)) if op]
    distance = min(distances)
    masks = first is not None and second is not None and _opposite(first, second, one, other)
    return Difference(
        first, second, distance if math.isfinite(distance) else None, masks, torch.calls.cut or keras.calls.cut
    )


def sentence(difference: Difference) -> str:
    """Return in words where the calls part."""
    torch, keras = difference.torch, difference.keras
    parts = [f"torch {_place(torch)}, keras {_place(keras)}: what goes in agrees, what comes out does not"]
    if difference.apart is not None:
        parts.append(f"the nearest tensors are {difference.apart:.1e} of their largest value apart")
    if difference.opposite_masks:
        parts.append("the mask is the other side's opposite")
    if torch and keras and (sources := _sources("torch", torch) + _sources("keras", keras)):
        parts.append("what goes in was made at " + ", ".join(sources))
    if difference.cut:
        parts.append("not all tensors were kept, so that the calls may part earlier")
    return "; ".join(parts)


def _place(parting: Parting | None) -> str:
    if parting is None:
        return "has no such op"
    return f"`{parting.name}`" + (f" at {parting.line}" if parting.line else "")


def _sources(side: str, parting: Parting) -> list[str]:
    """Return the lines that made what an op takes, if they are not its own line."""
    return [f"{source} ({side})" for source in parting.sources if source != parting.line]


def _match(one: _Side, other: _Side) -> None:
    """Note which tensors have which counterparts."""
    for number, partner in _equal(one, other):
        one.matched.setdefault(number, set()).add(partner)
        other.matched.setdefault(partner, set()).add(number)


def _equal(one: _Side, other: _Side) -> Iterator[tuple[int, int]]:
    for number, value in one.values.items():
        for partner, candidate in other.values.items():
            if values.equal(value, candidate) and _tells(number in one.makers, partner in other.makers, value):
                yield number, partner


def _tells(made: bool, made_there: bool, value: Value) -> bool:
    """Return whether two equal tensors are counterparts: a computed constant is none of a literal."""
    return made == made_there or not value.is_plain


def _nearest(here: list[Parting], there: list[Parting], one: _Side) -> tuple[Parting | None, Parting | None]:
    """Return the ops of both sides that are most likely each other's: of the same inputs, with outputs close by."""
    if not here or not there:
        return (here[0] if here else None), (there[0] if there else None)

    def rank(pair: tuple[Parting, Parting]) -> tuple[bool, float]:
        known = set[int]().union(*(one.matched.get(number, ()) for number in pair[0].inputs))
        distance = values.apart(pair[0].output, pair[1].output)
        return not known & pair[1].inputs, 2.0 if distance is None else distance

    return min(((first, second) for first in here for second in there), key=rank)


def _opposite(first: Parting, second: Parting, one: _Side, other: _Side) -> bool:
    """Return whether a mask that one op takes is the opposite of one that the other op takes, and equal to none."""
    masks = [one.values[number] for number in first.inputs if number in one.values]
    theirs = [other.values[number] for number in second.inputs if number in other.values]
    return any(values.opposite(mask, another) for mask in masks for another in theirs)
