"""Align the units of both sides in the order of first calls.

What one alignment leaves over (a shortcut that one side calls before the main path and the other after it) is aligned
again among itself, until nothing can be linked any more. Shapes decide what is possible; then kinds count and, least
of all, names.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from parity.pairs.patterns import Shape
from parity.pairs.weights import names
from parity.pairs.weights.links import Link, link
from parity.pairs.weights.units import Unit

# Scores: for each unit that gets a counterpart, then for what speaks for this very counterpart.
PLACED, KIND, PART, NAME, NUMBER, NEXT = 3.0, 1.0, 1.5, 1.0, 0.25, 0.5
ELSEWHERE = 5.0  # subtracted if a unit is within an encoder on one side and within a decoder on the other
MISSING = 0.75  # subtracted for each weight that has no counterpart
MOST = 3  # units that are packed into one
SIZES = ((1, 1), (1, 3), (3, 1), (1, 2), (2, 1))  # how many units of torch's and of Keras's a link may hold
ImageOf = Callable[[Unit], Shape]


class PlacedLink(msgspec.Struct, frozen=True, eq=False):
    """A link, the positions of its first units on both sides, and the number of the alignment that found it."""

    link: Link
    torch: int
    keras: int
    round: int


def align(torch: Sequence[Unit], keras: Sequence[Unit], image: ImageOf) -> list[PlacedLink]:
    """Return links between the units of both sides, in the order of torch's units.

    `image` tells the shape, channels first, that torch flattens before a unit's matrix; () if it flattens none.
    """
    links = _Links(torch, keras, image)
    left = list(range(len(torch))), list(range(len(keras)))
    placed_links: list[PlacedLink] = []
    for turn in range(len(torch) + 1):
        steps = _best(*left, links)
        if not steps:
            break
        for torch_positions, keras_positions in steps:
            placed_links.append(
                PlacedLink(links.link(torch_positions, keras_positions), torch_positions[0], keras_positions[0], turn)
            )
        used = (
            {position for torch_positions, _ in steps for position in torch_positions},
            {position for _, keras_positions in steps for position in keras_positions},
        )
        left = (
            [position for position in left[0] if position not in used[0]],
            [position for position in left[1] if position not in used[1]],
        )
    return sorted(placed_links, key=lambda placed: placed.torch)


Positions = tuple[int, ...]
Step = tuple[Positions, Positions]


class _Traits(NamedTuple):
    """What a unit's kind and name say about it."""

    family: str
    part: str
    holders: frozenset[str]
    words: frozenset[str]

    @classmethod
    def of(cls, unit: Unit) -> "_Traits":
        return cls(unit.family, names.part(unit.label), names.holders(unit.label), names.distinctive_words(unit.label))

    def against(self, other: "_Traits") -> float:
        """Return a score for how much speaks for another unit's being the counterpart."""
        score = PART * (1 if self.part == other.part else -1) if self.part and other.part else 0.0
        if self.holders and other.holders and not self.holders & other.holders:
            score -= ELSEWHERE
        return KIND * (self.family == other.family) + score + NAME * names.overlap(self.words, other.words)


class _Links:
    """The links that are possible, with their scores.

    Scores are computed once for each signature, since models repeat their layers.
    """

    def __init__(self, torch: Sequence[Unit], keras: Sequence[Unit], image: ImageOf) -> None:
        self.torch, self.keras, self.image_of = torch, keras, image
        self.signatures: dict[object, int] = {}
        self.kinds = [[self._number(unit) for unit in units] for units in (torch, keras)]
        self.sizes = [[_size(unit) for unit in units] for units in (torch, keras)]
        self.missing: dict[tuple[Positions, Positions], float] = {}
        numbers_of_traits: dict[_Traits, int] = {}
        self.traits = [
            [numbers_of_traits.setdefault(_Traits.of(unit), len(numbers_of_traits)) for unit in units]
            for units in (torch, keras)
        ]
        self.distinct_traits = list(numbers_of_traits)
        self.first = [[names.numbers(unit.label)[:1] for unit in units] for units in (torch, keras)]
        self.evidence: dict[tuple[int, int], float] = {}

    def _number(self, unit: Unit) -> int:
        return self.signatures.setdefault(unit.signature, len(self.signatures))

    def link(self, torch_positions: Positions, keras_positions: Positions) -> Link:
        """Return the link of some units.

        Raises ValueError for units that `score` does not allow to be linked.
        """
        linked = self._linked(torch_positions, keras_positions)
        if linked is None:
            raise ValueError(f"units {torch_positions} and {keras_positions} cannot be linked")
        return linked

    def _linked(self, torch_positions: Positions, keras_positions: Positions) -> Link | None:
        torch = [self.torch[position] for position in torch_positions]
        return link(torch, [self.keras[position] for position in keras_positions], self.image_of(torch[0]))

    def score(self, torch_positions: Positions, keras_positions: Positions) -> float:
        """Return how much speaks for a link; 0 if the units cannot be linked."""
        key = (
            tuple(self.kinds[0][position] for position in torch_positions),
            tuple(self.kinds[1][position] for position in keras_positions),
        )
        # Lone biases are packed only if their names say so: then equal signatures do not give equal answers.
        named = len(keras_positions) > 1 and not self.torch[torch_positions[0]].family
        if named or key not in self.missing:
            self.missing[key] = self._missing(torch_positions, keras_positions)
        if self.missing[key] < 0:
            return 0.0
        evidence = [self._evidence(ours, theirs) for ours in torch_positions for theirs in keras_positions]
        own = sum(evidence) / len(evidence)
        aliases = sum(self.torch[position].alias for position in torch_positions)
        return PLACED * (len(torch_positions) + len(keras_positions) - aliases) + own - MISSING * self.missing[key]

    def _missing(self, torch_positions: Positions, keras_positions: Positions) -> float:
        """Return how many weights a link would leave without a counterpart; -1 if there is no link."""
        linked = self._linked(torch_positions, keras_positions)
        if linked is None:
            return -1.0
        counts = (
            sum(len(self.torch[position].weights) for position in torch_positions),
            sum(len(self.keras[position].weights) for position in keras_positions),
        )
        linked_counts = (
            sum(len(entry.torch) for entry in linked.entries),
            sum(len(entry.keras) for entry in linked.entries),
        )
        return float(sum(counts) - sum(linked_counts))

    def _evidence(self, ours: int, theirs: int) -> float:
        """Return how much kinds and names speak for two units being counterparts.

        It is computed once for all units whose names differ only in numbers; the first number is compared each time.
        """
        key = self.traits[0][ours], self.traits[1][theirs]
        if key not in self.evidence:
            self.evidence[key] = self.distinct_traits[key[0]].against(self.distinct_traits[key[1]])
        first = self.first[0][ours]
        return self.evidence[key] + (NUMBER if first and first == self.first[1][theirs] else 0.0)


def _size(unit: Unit) -> int:
    """Return the number of elements of a unit's main weights; biases may be missing on one side."""
    return sum(math.prod(weight.shape) for role, weight in unit.weights.items() if role in _MAIN)


_MAIN = ("weight", "recurrent", "depthwise", "pointwise")


def _best(torch_left: list[int], keras_left: list[int], links: _Links) -> list[Step]:
    """Return the steps of the alignment of two sequences with the highest score, by dynamic programming.

    `torch_left` and `keras_left` are the positions of the units that have no counterpart yet.
    """
    width = len(keras_left) + 1
    scores = [[0.0] * width for _ in range(len(torch_left) + 1)]
    steps_taken: list[list[Step | None]] = [[None] * width for _ in range(len(torch_left) + 1)]
    sizes = [links.sizes[0][position] for position in torch_left], [links.sizes[1][position] for position in keras_left]
    ends = [_ends(sizes[1], count) for count in range(MOST + 1)]
    for row in range(1, len(torch_left) + 1):
        possible: dict[int, list[Step]] = {}
        for rows, columns in SIZES:
            for column in ends[columns].get(sum(sizes[0][row - rows : row]), ()) if row >= rows else ():
                step = tuple(torch_left[row - rows : row]), tuple(keras_left[column - columns : column])
                possible.setdefault(column, []).append(step)
        for column in range(1, width):
            scores[row][column] = max(scores[row - 1][column], scores[row][column - 1])
            for step in possible.get(column, ()):
                score = links.score(*step)
                first = row - len(step[0]), column - len(step[1])
                total = score + scores[first[0]][first[1]] + NEXT * (steps_taken[first[0]][first[1]] is not None)
                if score > 0 and total > scores[row][column]:
                    scores[row][column], steps_taken[row][column] = total, step
    return _path(scores, steps_taken)


def _ends(sizes: list[int], count: int) -> dict[int, list[int]]:
    """Return where runs of `count` units end, by the number of elements that they have together."""
    ends_by_size: dict[int, list[int]] = {}
    for end in range(count, len(sizes) + 1):
        ends_by_size.setdefault(sum(sizes[end - count : end]), []).append(end)
    return ends_by_size


def _path(scores: list[list[float]], steps_taken: list[list[Step | None]]) -> list[Step]:
    """Follow the steps that were taken back from the end."""
    row, column = len(scores) - 1, len(scores[0]) - 1
    steps = []
    while row and column:
        step = steps_taken[row][column]
        if step:
            steps.append(step)
            row, column = row - len(step[0]), column - len(step[1])
        elif scores[row - 1][column] == scores[row][column]:
            row -= 1
        else:
            column -= 1
    return steps[::-1]
