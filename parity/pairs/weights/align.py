"""Which units of the one side are which of the other's: aligned in the order of first calls, again and again.

What an alignment leaves (a shortcut that one side calls before the main path and the other behind it) is aligned
anew among itself. Shapes decide what is possible, then count kinds and, least, names.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from parity.pairs.patterns import Shape
from parity.pairs.weights import names
from parity.pairs.weights.links import Link, link
from parity.pairs.weights.units import Unit

# How far evidence counts: a unit that has its place, then what speaks for this one.
PLACED, KIND, PART, NAME, NUMBER, NEXT = 3.0, 1.0, 1.5, 1.0, 0.25, 0.5
ELSEWHERE = 5.0  # less for what is within an encoder on one side, and within a decoder on the other
MISSING = 0.75  # less for each weight that has no counterpart
MOST = 3  # units that are packed into one
SIZES = ((1, 1), (1, 3), (3, 1), (1, 2), (2, 1))  # how many units of torch's and of Keras's may make each other
Image = Callable[[Unit], Shape]


class Placed(msgspec.Struct, frozen=True, eq=False):
    """A link with the places of its first units, and the number of the alignment that found it."""

    link: Link
    torch: int
    keras: int
    round: int


def align(torch: Sequence[Unit], keras: Sequence[Unit], image: Image) -> list[Placed]:
    """Links in the order of torch's units."""
    links = _Links(torch, keras, image)
    left = list(range(len(torch))), list(range(len(keras)))
    found: list[Placed] = []
    for turn in range(len(torch) + 1):
        steps = _best(*left, links)
        if not steps:
            break
        for ours, theirs in steps:
            found.append(Placed(links.link(ours, theirs), ours[0], theirs[0], turn))
        used = {one for ours, _ in steps for one in ours}, {one for _, theirs in steps for one in theirs}
        left = [one for one in left[0] if one not in used[0]], [one for one in left[1] if one not in used[1]]
    return sorted(found, key=lambda one: one.torch)


Places = tuple[int, ...]
Step = tuple[Places, Places]


class _Says(NamedTuple):
    """What a unit's kind and name say of it."""

    family: str
    part: str
    holders: frozenset[str]
    words: frozenset[str]

    @classmethod
    def of(cls, unit: Unit) -> "_Says":
        """Of one."""
        return cls(unit.family, names.part(unit.label), names.holders(unit.label), names.telling(unit.label))

    def against(self, other: "_Says") -> float:
        """How much speaks for the other's being the same."""
        told = PART * (1 if self.part == other.part else -1) if self.part and other.part else 0.0
        if self.holders and other.holders and not self.holders & other.holders:
            told -= ELSEWHERE
        return KIND * (self.family == other.family) + told + NAME * names.shared(self.words, other.words)


class _Links:
    """What could be linked, each asked once: by signatures, since models repeat their layers."""

    def __init__(self, torch: Sequence[Unit], keras: Sequence[Unit], image: Image) -> None:
        self.torch, self.keras, self.image = torch, keras, image
        self.signatures: dict[object, int] = {}
        self.kinds = [[self._number(unit) for unit in units] for units in (torch, keras)]
        self.sizes = [[_size(unit) for unit in units] for units in (torch, keras)]
        self.missing: dict[tuple[Places, Places], float] = {}
        known: dict[_Says, int] = {}
        self.says = [[known.setdefault(_Says.of(unit), len(known)) for unit in units] for units in (torch, keras)]
        self.known = list(known)
        self.first = [[names.numbers(unit.label)[:1] for unit in units] for units in (torch, keras)]
        self.evidence: dict[tuple[int, int], float] = {}

    def _number(self, unit: Unit) -> int:
        return self.signatures.setdefault(unit.signature, len(self.signatures))

    def link(self, ours: Places, theirs: Places) -> Link:
        """One that `score` allows."""
        found = self._found(ours, theirs)
        if found is None:
            raise ValueError(f"units {ours} and {theirs} do not make each other")
        return found

    def _found(self, ours: Places, theirs: Places) -> Link | None:
        torch = [self.torch[one] for one in ours]
        return link(torch, [self.keras[one] for one in theirs], self.image(torch[0]))

    def score(self, ours: Places, theirs: Places) -> float:
        """How much speaks for it; 0 where nothing may be linked."""
        key = tuple(self.kinds[0][one] for one in ours), tuple(self.kinds[1][one] for one in theirs)
        named = len(theirs) > 1 and not self.torch[ours[0]].family  # biases alone are packed where names tell
        if named or key not in self.missing:
            self.missing[key] = self._missing(ours, theirs)
        if self.missing[key] < 0:
            return 0.0
        every = [self._evidence(one, other) for one in ours for other in theirs]
        own = sum(every) / len(every)
        aliases = sum(self.torch[one].alias for one in ours)
        return PLACED * (len(ours) + len(theirs) - aliases) + own - MISSING * self.missing[key]

    def _missing(self, ours: Places, theirs: Places) -> float:
        """How many weights a link would leave; -1 if there is none."""
        found = self._found(ours, theirs)
        if found is None:
            return -1.0
        counts = sum(len(self.torch[one].weights) for one in ours), sum(len(self.keras[one].weights) for one in theirs)
        placed = sum(len(entry.torch) for entry in found.entries), sum(len(entry.keras) for entry in found.entries)
        return float(sum(counts) - sum(placed))

    def _evidence(self, ours: int, theirs: int) -> float:
        """Of kinds and names, asked once for all layers whose names differ by numbers alone, and of these."""
        key = self.says[0][ours], self.says[1][theirs]
        if key not in self.evidence:
            self.evidence[key] = self.known[key[0]].against(self.known[key[1]])
        first = self.first[0][ours]
        return self.evidence[key] + (NUMBER if first and first == self.first[1][theirs] else 0.0)


def _size(unit: Unit) -> int:
    """Of its main weights: biases may be missing."""
    return sum(math.prod(weight.shape) for role, weight in unit.weights.items() if role in _MAIN)


_MAIN = ("weight", "recurrent", "depthwise", "pointwise")


def _best(ours: list[int], theirs: list[int], links: _Links) -> list[Step]:
    """The alignment of two sequences with the highest score (dynamic programming)."""
    width = len(theirs) + 1
    scores = [[0.0] * width for _ in range(len(ours) + 1)]
    taken: list[list[Step | None]] = [[None] * width for _ in range(len(ours) + 1)]
    sizes = [links.sizes[0][one] for one in ours], [links.sizes[1][one] for one in theirs]
    ends = [_ends(sizes[1], count) for count in range(MOST + 1)]
    for row in range(1, len(ours) + 1):
        possible: dict[int, list[Step]] = {}
        for count, other in SIZES:
            for column in ends[other].get(sum(sizes[0][row - count : row]), ()) if row >= count else ():
                step = tuple(ours[row - count : row]), tuple(theirs[column - other : column])
                possible.setdefault(column, []).append(step)
        for column in range(1, width):
            scores[row][column] = max(scores[row - 1][column], scores[row][column - 1])
            for step in possible.get(column, ()):
                score = links.score(*step)
                first = row - len(step[0]), column - len(step[1])
                better = score + scores[first[0]][first[1]] + NEXT * (taken[first[0]][first[1]] is not None)
                if score > 0 and better > scores[row][column]:
                    scores[row][column], taken[row][column] = better, step
    return _path(scores, taken)


def _ends(sizes: list[int], count: int) -> dict[int, list[int]]:
    """Where runs of so many units end, by how many elements they have together."""
    found: dict[int, list[int]] = {}
    for end in range(count, len(sizes) + 1):
        found.setdefault(sum(sizes[end - count : end]), []).append(end)
    return found


def _path(scores: list[list[float]], taken: list[list[Step | None]]) -> list[Step]:
    row, column = len(scores) - 1, len(scores[0]) - 1
    steps = []
    while row and column:
        step = taken[row][column]
        if step:
            steps.append(step)
            row, column = row - len(step[0]), column - len(step[1])
        elif scores[row - 1][column] == scores[row][column]:
            row -= 1
        else:
            column -= 1
    return steps[::-1]
