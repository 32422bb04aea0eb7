"""Align the units of both sides in the order of first calls.

What one alignment leaves over (a shortcut that one side calls before the main path and the other after it) is aligned
again among itself, until nothing can be linked any more. Shapes decide what is possible; then kinds count and, least
of all, names. But modules whose names exclude each other (within `text` and within `vision`) are linked only when
nothing else is left. Single weights that are left over, and buffers, are aligned in the same way.

Keras may hold a part of the rows of a table of embeddings: torch's may begin or end with rows for padding. The names
have to say that both are tables of one thing (positions, tokens, segments). Which rows Keras has is left to running,
and always told. A table with fewer rows than Keras's has no counterpart: nothing would fill the others.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from parity.core.groups import Block, by_key
from parity.core.groups import align as best_blocks
from parity.pairs.untrained.built import Built
from parity.pairs.weights import names, statistics
from parity.pairs.weights.links import Link, make_link
from parity.pairs.weights.units import Unit, bare_unit, single_weight_units
from parity.runtime.survey import Survey
from parity.trace.mapping import Entry

# Scores: for each unit that gets a counterpart, then for what speaks for this very counterpart.
PLACED, KIND, PART, NAME, NUMBER, NEXT = 3.0, 1.0, 1.5, 1.0, 0.25, 0.5
IDLE = 0.75  # subtracted if a unit takes part in what is compared, and its counterpart does not
ELSEWHERE = 5.0  # subtracted if a unit is within an encoder on one side and within a decoder on the other
MISSING = 0.75  # subtracted for each weight that has no counterpart
SIZES = ((1, 1), (1, 3), (3, 1), (1, 2), (2, 1))  # how many units of torch's and of Keras's a link may hold
MOSTLY = 0.5  # the part of two tables' elements that says, where they are equal, that the tables correspond
MAIN = ("weight", "recurrent", "depthwise", "pointwise")  # roles of weights that no side leaves out
FEW = 3  # up to so many further rows, the part may begin at any of them; of more, it is the first or the last rows
COMMON = names.HOLDERS | {"embedding"}  # words that tables of different things share
Positions = tuple[int, ...]


def align(torch: Sequence[Unit], keras: Sequence[Unit]) -> list[Link]:
    """Return links between the units of both sides, in the order of torch's units."""
    links = _Links(torch, keras)
    left = [list(range(len(torch))), list(range(len(keras)))]
    aligned: list[Link] = []
    for turn in range(len(torch) + 2):
        positions = _best(left[0], left[1], links)
        if not positions and not links.is_strict:
            break
        links.is_strict = links.is_strict and bool(positions)
        for ours, theirs in positions:
            link = links.link(ours, theirs)
            if link:
                aligned.append(replace(link, torch_position=ours[0], keras_position=theirs[0], round=turn))
        used = [{position for step in positions for position in step[side]} for side in (0, 1)]
        left = [[position for position in left[side] if position not in used[side]] for side in (0, 1)]
    return sorted(aligned, key=lambda link: link.torch_position)


def align_single_weights(torch: Sequence[Unit], keras: Sequence[Unit], links: Sequence[Link]) -> list[Link]:
    """Align the weights that are left one by one, but not those of two units that both have counterparts."""
    whole = {id(unit) for link in links for unit in (*link.torch, *link.keras)}
    torch_left = _unused(torch, {name for link in links for entry in link.entries for name in entry.torch})
    keras_left = _unused(keras, {name for link in links for entry in link.entries for name in entry.keras})
    has_linked_owner = {id(weight): id(owner) in whole for weight, owner in (*torch_left, *keras_left)}
    aligned = align([weight for weight, _ in torch_left], [weight for weight, _ in keras_left])
    return [
        link for link in aligned if not (has_linked_owner[id(link.torch[0])] and has_linked_owner[id(link.keras[0])])
    ]


def align_buffers(
    torch: Survey, keras: Sequence[Unit], links: Iterable[Link], skipped: Iterable[str], built: Built
) -> list[Link]:
    """Align torch's buffers that are no statistics with the untrained weights that Keras has left.

    Values decide first, equal ones and those of statistics, then names. Floating-point buffers are aligned with each
    other, and whole numbers with each other.
    """
    used = {name for link in links for entry in link.entries for name in entry.keras}
    wanted = [unit for unit, _ in _unused(keras, used) if not unit.weights["weight"].trainable]
    given = [bare_unit(weight) for weight in torch.weights if weight.constant and weight.name not in set(skipped)]
    aligned = list(statistics.links(given, wanted, built))
    linked = {id(unit) for link in aligned for unit in (*link.torch, *link.keras)}
    left = [[unit for unit in side if id(unit) not in linked] for side in (given, wanted)]
    aligned += _of_equal_values(left[0], left[1], built)
    linked = {id(unit) for link in aligned for unit in (*link.torch, *link.keras)}
    for floating in (True, False):
        ours, theirs = (
            [unit for unit in units if ("float" in unit.weights["weight"].dtype) == floating and id(unit) not in linked]
            for units in (given, wanted)
        )
        aligned += align(ours, theirs)
    return aligned


def link_tables(torch: Sequence[Unit], keras: Sequence[Unit], links: Iterable[Link]) -> list[Link]:
    """Return links of the tables that `links` leave over, each with a choice for every part that Keras may have."""
    used = {name for link in links for entry in link.entries for name in (*entry.torch, *entry.keras)}
    tables = [
        [unit for unit in side if unit.family == "embedding" and not unit.alias and list(unit.weights) == ["weight"]]
        for side in (torch, keras)
    ]
    left = [[unit for unit in side if unit.weights["weight"].name not in used] for side in tables]
    likely = sorted(itertools.product(*left), key=lambda pair: -names.similarity(pair[0].label, pair[1].label))
    found: list[Link] = []
    for ours, theirs in likely:
        taken = {id(unit) for link in found for unit in (*link.torch, *link.keras)}
        table, part = ours.weights["weight"], theirs.weights["weight"]
        is_part = table.shape[1:] == part.shape[1:] and table.shape[0] > part.shape[0]
        shared = (names.distinctive_words(ours.label) & names.distinctive_words(theirs.label)) - COMMON
        is_free = not taken & {id(ours), id(theirs)}
        if is_part and shared and ours.unused == theirs.unused and is_free:
            slices = _slices(table.shape[0], part.shape[0])
            choices = [[Entry(torch=[table.name], keras=[part.name], slice=rows)] for rows in slices]
            found.append(Link(torch=(ours,), keras=(theirs,), entries=choices[0], choices=choices))
    return found


def _slices(rows: int, wanted: int) -> Iterator[str]:
    """Yield the slices of so many consecutive rows: the last, the first, and those between if they are few."""
    further = rows - wanted
    yield f"{further}:"
    yield f":{wanted}"
    if further <= FEW:
        yield from (f"{start}:{start + wanted}" for start in range(1, further))


def _of_equal_values(torch: Sequence[Unit], keras: Sequence[Unit], built: Built) -> Iterator[Link]:
    """Yield links of units with equal values, everywhere first, then mostly; of several, to the most similar name."""
    given, wanted = dict(enumerate(torch)), dict(enumerate(keras))
    for part, ours in itertools.product((1.0, MOSTLY), range(len(torch))):
        likely = sorted(wanted, key=lambda number: -names.similarity(torch[ours].label, wanted[number].label))
        for theirs in likely if ours in given else ():
            link = make_link([torch[ours]], [wanted[theirs]])
            choices = link.alternatives if link else ()
            equal = [entry for choice in choices for entry in choice if built.same(entry, part)]
            if link and equal:
                yield replace(link, entries=equal[:1], choices=[])
                del given[ours], wanted[theirs]
                break


def _unused(units: Iterable[Unit], used: set[str]) -> list[tuple[Unit, Unit]]:
    """Return each unused weight as a unit of its own, with the unit that it belongs to."""
    return [
        (single, unit)
        for unit in units
        for single in single_weight_units(unit)
        if single.weights["weight"].name not in used
    ]


class _Traits(NamedTuple):
    """What a unit's kind and name say about it."""

    family: str
    part: str
    holders: frozenset[str]
    words: frozenset[str]
    telling: frozenset[str]
    unused: bool

    @classmethod
    def of(cls, unit: Unit) -> "_Traits":
        label = unit.label
        telling = names.telling_words(unit.chosen)
        words = names.distinctive_words(label)
        return cls(unit.family, names.part(label), names.holders(label), words, telling, unit.unused)

    def against(self, other: "_Traits") -> float:
        """Return a score for how much speaks for another unit's being the counterpart."""
        score = PART * (1 if self.part == other.part else -1) if self.part and other.part else 0.0
        if self.holders and other.holders and not self.holders & other.holders:
            score -= ELSEWHERE
        score -= IDLE * (self.unused != other.unused)
        return KIND * (self.family == other.family) + score + NAME * names.overlap(self.words, other.words)


class _Links:
    """The links that are possible, with their scores.

    Scores are computed once for each signature, since models repeat their layers. While `is_strict`, units whose names
    exclude each other cannot be linked.
    """

    is_strict = True

    def __init__(self, torch: Sequence[Unit], keras: Sequence[Unit]) -> None:
        self.torch, self.keras = torch, keras
        self.sizes = [[_size(unit) for unit in side] for side in (torch, keras)]
        self.traits = [[_Traits.of(unit) for unit in side] for side in (torch, keras)]
        kinds: dict[object, int] = {}
        self.kinds = [
            [
                kinds.setdefault((unit.signature, traits, unit.alias), len(kinds))
                for unit, traits in zip(side, own, strict=True)
            ]
            for side, own in zip((torch, keras), self.traits, strict=True)
        ]
        self.scores: dict[tuple[Positions, Positions, bool], float | None] = {}
        vocabulary = names.Vocabulary(*((unit.chosen for unit in side) for side in (torch, keras)))
        self.excludes = functools.cache(vocabulary.excludes)
        self.first = [[names.numbers(unit.label)[:1] for unit in side] for side in (torch, keras)]

    def link(self, ours: Positions, theirs: Positions) -> Link | None:
        """Return the link of some units; None if they cannot be linked."""
        return make_link([self.torch[position] for position in ours], [self.keras[position] for position in theirs])

    def score(self, ours: Positions, theirs: Positions) -> float:
        """Return how much speaks for a link; 0 if the units cannot be linked.

        It is computed once for all units that differ only in the numbers of their names; the first numbers are compared
        each time.
        """
        torch, keras = self.kinds
        key = tuple([torch[each] for each in ours]), tuple([keras[each] for each in theirs]), self.is_strict
        # Lone biases are packed only if their names say so: then equal signatures do not give equal answers.
        named = len(theirs) > 1 and not self.torch[ours[0]].family
        if named or key not in self.scores:
            self.scores[key] = self._score(ours, theirs)
        score, first = self.scores[key], self.first
        if score is None:
            return 0.0
        same = sum(bool(first[0][our]) and first[0][our] == first[1][their] for our in ours for their in theirs)
        return score + NUMBER * same / (len(ours) * len(theirs))

    def _score(self, ours: Positions, theirs: Positions) -> float | None:
        """Return how much speaks for a link, without numbers; None if the units cannot be linked."""
        link = self.link(ours, theirs)
        pairs = [(self.traits[0][torch], self.traits[1][keras]) for torch in ours for keras in theirs]
        is_excluded = self.is_strict and any(self.excludes(torch.telling, keras.telling) for torch, keras in pairs)
        if link is None or is_excluded:
            return None
        given = sum(len(unit.weights) for unit in (*link.torch, *link.keras))
        missing = given - sum(len(entry.torch) + len(entry.keras) for entry in link.entries)
        own = sum(torch.against(keras) for torch, keras in pairs) / len(pairs)
        aliases = sum(self.torch[position].alias for position in ours)
        return PLACED * (len(ours) + len(theirs) - aliases) + own - MISSING * missing


def _size(unit: Unit) -> int:
    """Return the elements of a unit's main weights, as biases may be missing; of a norm, its width."""
    if unit.family == "norm":
        return max(math.prod(weight.shape) for weight in unit.weights.values())
    return sum(math.prod(weight.shape) for role, weight in unit.weights.items() if role in MAIN)


def _best(torch_left: list[int], keras_left: list[int], links: _Links) -> list[tuple[Positions, Positions]]:
    """Return the positions of the units that the best alignment links, of those without a counterpart yet."""
    sizes = [links.sizes[0][position] for position in torch_left], [links.sizes[1][position] for position in keras_left]
    # Where runs of so many units end, by the number of elements that they have together.
    ends = {
        count: by_key((sum(sizes[1][end - count : end]), end) for end in range(count, len(sizes[1]) + 1))
        for _, count in SIZES
    }

    def ending(row: int) -> Iterator[Block]:
        for rows, columns in SIZES:
            ours = tuple(torch_left[row - rows : row])
            for column in ends[columns].get(sum(sizes[0][row - rows : row]), ()) if row >= rows else ():
                score = links.score(ours, tuple(keras_left[column - columns : column]))
                yield Block(row, column, rows, columns, score)

    blocks = best_blocks(len(torch_left), len(keras_left), ending, NEXT)
    return [
        (
            tuple(torch_left[block.torch_end - block.torch : block.torch_end]),
            tuple(keras_left[block.keras_end - block.keras : block.keras_end]),
        )
        for block in blocks
    ]
