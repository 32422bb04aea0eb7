"""Equal-shaped units that names do not tell apart: every order of them is a choice of an ambiguity, to be tried."""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from parity.pairs.weights import names
from parity.pairs.weights.align import Image, Placed
from parity.pairs.weights.families import MOST
from parity.pairs.weights.groups import (
    CROSSED,
    Group,
    adjacent,
    is_counted,
    is_simple,
    labels,
    path,
    reordered,
    says,
    signature,
    told,
)
from parity.pairs.weights.links import Link
from parity.trace.mapping import Entry

FEW = 4  # siblings that a crossing is looked for among
CHOICES = 12  # of an ambiguity that is about order and about orientation


class AmbiguousUnits(NamedTuple):
    """What can be one way or another, at a module of torch's. `counted`: the first choice is in order of creation."""

    place: str
    choices: list[list[Entry]]
    counted: bool = False


def ambiguities(placed: list[Placed], image: Image) -> list[AmbiguousUnits]:
    """What only running can tell: orders of siblings, together with how their matrices stand."""
    found: list[AmbiguousUnits] = []
    neighbours = list(adjacent(placed))
    used: set[int] = set()
    for group in [*_crossing(placed), *neighbours]:
        places = {one.torch for one in group}
        if len(group) < 2 or used & places or _settled(group):
            continue
        used |= places
        counted = group in neighbours and is_counted(group)
        found.append(AmbiguousUnits(group[0].link.torch[0].module, _choices([group], image), counted))
    for groups in _branches([one for one in placed if one.torch not in used]):
        used |= {one.torch for group in groups for one in group}
        found.append(AmbiguousUnits(groups[0][0].link.torch[0].module, _choices(groups, image)))
    own = (
        AmbiguousUnits(one.link.torch[0].module, one.link.ambiguities[0])
        for one in placed
        if one.torch not in used and one.link.ambiguities
    )
    return [*found, *own]


def told_apart(placed: list[Placed], image: Image) -> list[AmbiguousUnits]:
    """The siblings that names tell apart, with every other order of them: a port may have exchanged them."""
    groups = (group for group in adjacent(placed) if len(group) < FEW and _settled(group))
    return [AmbiguousUnits(group[0].link.torch[0].module, _choices([group], image)) for group in groups]


def _crossing(placed: list[Placed]) -> Iterator[Group]:
    """What is called in another order than others of its kind and shape, with the nearest of these."""
    for one in placed:
        if not one.round or not is_simple(one):
            continue
        others = [
            other
            for other in placed
            if is_simple(other)
            and signature(other) == signature(one)
            and (other.torch < one.torch) != (other.keras < one.keras)
        ]
        near = sorted(others, key=lambda other: abs(other.torch - one.torch))[: FEW - 2]
        yield sorted([one, *near], key=lambda member: member.torch)


def _branches(placed: list[Placed]) -> Iterator[list[Group]]:
    """Matrices of one shape in a block, which may be on paths side by side, each with what else is on its path.

    A residual block's shortcut is called before its main path on one side and behind it on the other, and if all
    convolutions are of one shape, the order of calls is no evidence: the norms go with the convolutions.
    """
    blocks: dict[str, dict[object, Group]] = {}
    for one in placed:
        if is_simple(one):
            blocks.setdefault(_block(one.link.torch[0].label), {}).setdefault(signature(one), []).append(one)
    for groups in blocks.values():
        few = [group for group in groups.values() if 1 < len(group) < FEW]
        main = next((group for group in few if _is_matrix(group[0]) and not _settled(group)), None)
        if main:
            yield [main, *(group for group in few if group is not main and _follows(main, group))]


def _block(label: str) -> str:
    """The module around a unit; what is numbered is part of a path."""
    return re.sub(r"([./]?[^./]*?[./]\d+|[./]?[^./]*)$", "", label)


def _is_matrix(one: Placed) -> bool:
    weight = one.link.torch[0].weights.get("weight")
    return weight is not None and len(weight.shape) > 1


def _follows(main: Group, group: Group) -> bool:
    """Whether each of the group stands between two of the main one, on both sides."""
    if len(group) != len(main):
        return False
    torch = sorted([*main, *group], key=lambda one: one.torch)
    keras = sorted([*main, *group], key=lambda one: one.keras)
    return all([one in main for one in side] == [True, False] * len(main) for side in (torch, keras))


def _settled(group: Group) -> bool:
    """Whether names confirm how they are assigned."""
    if all(path(one.link.torch[0].label) == path(one.link.keras[0].label) for one in group):
        return True
    if told(group) == tuple(range(len(group))):
        return True
    ordered = all(before.keras < after.keras for before, after in itertools.pairwise(group))
    if ordered and all(_counted(labels) for labels in labels(group)):
        return True
    if all(says(*pair) == -CROSSED for pair in itertools.combinations(group, 2)):
        return True
    pairs = itertools.combinations(group, 2)
    return all(_nearer(*pair) for pair in pairs if ordered or pair[0].keras > pair[1].keras)


def _counted(labels: list[str]) -> bool:
    """Whether they differ by rising numbers alone: fc1 and fc2, dense and dense_1."""
    plain = {re.sub(r"[\d_]+", "", label) for label in labels}
    keys = [names.numbers(label) for label in labels]
    return len(plain) == 1 and keys == sorted(keys)


def _nearer(one: Placed, other: Placed) -> bool:
    """Whether names say that two links are better than the two with their ends exchanged."""
    here, there = labels([one, other])
    own = names.alike(here[0], there[0]) + names.alike(here[1], there[1])
    return own > names.alike(here[0], there[1]) + names.alike(here[1], there[0])


def _orders(count: int) -> list[tuple[int, ...]]:
    """The first is that of the group."""
    return list(itertools.islice(itertools.permutations(range(count)), MOST))


def _choices(groups: list[Group], image: Image) -> list[list[Entry]]:
    """Every order, the same for all groups, and every way for matrices to stand; of many those that are one for all."""
    orders = [[one for group in groups for one in reordered(group, order, image)] for order in _orders(len(groups[0]))]
    ways = [[_ways(one.link) for one in order] for order in orders]
    every = [list(itertools.product(*way)) for way in ways]
    if sum(map(len, every)) > CHOICES:
        every = [list(zip(*way, strict=True)) for way in ways]
    return [list(itertools.chain.from_iterable(choice)) for order in every for choice in order][:CHOICES]


def _ways(made: Link) -> list[list[Entry]]:
    """All entries of a link, for each choice that it leaves."""
    if not made.ambiguities:
        return [made.entries]
    variables = {name for entry in made.ambiguities[0][0] for name in entry.keras}
    rest = [entry for entry in made.entries if not variables.intersection(entry.keras)]
    return [[*choice, *rest] for choice in made.ambiguities[0]]
