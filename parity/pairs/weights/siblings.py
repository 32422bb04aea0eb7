"""Equal-shaped units that could stand in for each other: told apart by their names, or left to be tried.

The alignment goes by the order of calls. Where the sides call siblings in another order (gate and up, query and
key), names tell; where they do not and the order is no evidence, every order is a choice of a doubt.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parity.pairs.mapping import Entry
from parity.pairs.weights import names
from parity.pairs.weights.align import Image, Placed
from parity.pairs.weights.families import MOST
from parity.pairs.weights.links import Link, link
from parity.pairs.weights.units import Unit, telling

FEW = 4  # siblings that names assign, and that a crossing is looked for among
CROSSED = -2  # what names say of two links whose ends should be exchanged
CHOICES = 12  # of a doubt that is about order and about orientation
Group = list[Placed]


class Doubtful(NamedTuple):
    """What can be one way or another, at a module of torch's. `counted`: the first choice is in order of creation."""

    place: str
    choices: list[list[Entry]]
    counted: bool = False


def named(placed: list[Placed], image: Image) -> list[Placed]:
    """With the siblings of a module assigned by what their names mean, where these do."""
    groups: dict[object, Group] = {}
    for one in placed:
        if _simple(one):
            groups.setdefault((_parent(one.link.torch[0]), _signature(one)), []).append(one)
    changed: dict[int, Placed] = {}
    for group in groups.values():
        order = _told(group) if 1 < len(group) <= FEW else None
        if order and order != tuple(range(len(group))):
            changed |= {one.torch: one for one in _reordered(group, order, image)}
    told = _uncrossed(_by_equal_names([changed.get(one.torch, one) for one in placed], image), image)
    return _in_order_of_creation(told, image)


def _by_equal_names(placed: list[Placed], image: Image) -> list[Placed]:
    """With units that have one and the same name on both sides put together: an exchange would be a fault."""
    found = list(placed)
    for number, one in enumerate(found):
        path = _path(one.link.torch[0].label)
        if not _simple(one) or _path(one.link.keras[0].label) == path:
            continue
        for place, other in enumerate(found):
            if _simple(other) and _path(other.link.keras[0].label) == path and _signature(other) == _signature(one):
                exchanged = list(_reordered([one, other], (1, 0), image))
                if len(exchanged) == 2:
                    found[number], found[place] = exchanged
                break
    return found


def _uncrossed(placed: list[Placed], image: Image) -> list[Placed]:
    """With the ends of two links exchanged where that is what the names of all four say."""
    groups: dict[object, list[int]] = {}
    for number, one in enumerate(placed):
        if _simple(one):
            groups.setdefault(_signature(one), []).append(number)
    found = list(placed)
    for numbers in groups.values():
        for first, second in itertools.combinations(numbers, 2):
            if _says(found[first], found[second]) == CROSSED:
                exchanged = list(_reordered([found[first], found[second]], (1, 0), image))
                if len(exchanged) == 2:
                    found[first], found[second] = exchanged
    return found


def _says(one: Placed, other: Placed) -> int:
    """What the names that somebody chose say of two links: 2 that they are right, -2 that they are crossed."""
    ends = [(one.link.torch[0].chosen, other.link.torch[0].chosen)]
    ends += [(one.link.keras[0].chosen, other.link.keras[0].chosen)]
    return names.says(*ends)


def _in_order_of_creation(placed: list[Placed], image: Image) -> list[Placed]:
    """With siblings that only Keras's counting tells apart in that order: a functional model calls them in any."""
    changed: dict[int, Placed] = {}
    for group in _adjacent(placed):
        units = [one.link.keras[0] for one in group]
        order = sorted(range(len(group)), key=lambda number: names.numbers(units[number].label))
        if _is_counted(group) and order != list(range(len(group))):
            changed |= {one.torch: one for one in _reordered(group, order, image)}
    return [changed.get(one.torch, one) for one in placed]


def _is_counted(group: Group) -> bool:
    """Whether torch defines siblings in the order in which it calls them, and Keras named their counterparts."""
    here, there = ([getattr(one.link, side)[0] for one in group] for side in ("torch", "keras"))
    defined = [unit.defined for unit in here]
    return defined == sorted(defined) and all(unit.counted for unit in there) and len(_plain(there)) == 1


def _plain(units: Sequence[Unit]) -> set[str]:
    return {re.sub(r"(_\d+)?$", "", unit.label) for unit in units}


def _path(label: str) -> tuple[str, ...]:
    return tuple(re.split(r"[./]", label))


def doubts(placed: list[Placed], image: Image) -> list[Doubtful]:
    """What only running can tell: orders of siblings, together with how their matrices stand."""
    found: list[Doubtful] = []
    adjacent = list(_adjacent(placed))
    used: set[int] = set()
    for group in [*_crossing(placed), *adjacent]:
        places = {one.torch for one in group}
        if len(group) < 2 or used & places or _settled(group):
            continue
        used |= places
        counted = group in adjacent and _is_counted(group)
        found.append(Doubtful(group[0].link.torch[0].module, _choices([group], image), counted))
    for groups in _branches([one for one in placed if one.torch not in used]):
        used |= {one.torch for group in groups for one in group}
        found.append(Doubtful(groups[0][0].link.torch[0].module, _choices(groups, image)))
    own = (
        Doubtful(one.link.torch[0].module, one.link.doubts[0])
        for one in placed
        if one.torch not in used and one.link.doubts
    )
    return [*found, *own]


def _simple(one: Placed) -> bool:
    return len(one.link.torch) == len(one.link.keras) == 1


def _parent(unit: Unit) -> str:
    return re.sub(r"[./]?[^./]*$", "", unit.label)


def _signature(one: Placed) -> object:
    return one.link.torch[0].signature, one.link.keras[0].signature


def _labels(group: Group) -> tuple[list[str], list[str]]:
    return [one.link.torch[0].label for one in group], [one.link.keras[0].label for one in group]


def _told(group: Group) -> tuple[int, ...] | None:
    """The Keras unit for each of torch's, where each has a name that means the same part; all but one are enough."""
    here, there = (telling(labels) for labels in _labels(group))
    shared = [part for part in here if part and here.count(part) == there.count(part) == 1]
    if len(shared) < len(group) - 1 or not shared:
        return None
    rest = [number for number, part in enumerate(there) if part not in shared]
    return tuple(there.index(part) if part in shared else rest[0] for part in here)


def _reordered(group: Group, order: Sequence[int], image: Image) -> Iterator[Placed]:
    for one, number in zip(group, order, strict=True):
        other = group[number]
        made = link(one.link.torch, other.link.keras, image(one.link.torch[0]))
        if made:
            yield Placed(made, one.torch, other.keras, 0)


def _adjacent(placed: list[Placed]) -> Iterator[Group]:
    """Siblings of one kind and shape with nothing between them on torch's side: branches side by side, maybe."""
    simple = [one if _simple(one) else None for one in placed]
    keys = [(one and (_parent(one.link.torch[0]), _signature(one))) or number for number, one in enumerate(simple)]
    for _, run in itertools.groupby(range(len(placed)), key=lambda number: keys[number]):
        group = [one for number in run if (one := simple[number])]
        if len(group) > 1:
            yield group


def _crossing(placed: list[Placed]) -> Iterator[Group]:
    """What is called in another order than others of its kind and shape, with the nearest of these."""
    for one in placed:
        if not one.round or not _simple(one):
            continue
        others = [
            other
            for other in placed
            if _simple(other)
            and _signature(other) == _signature(one)
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
        if _simple(one):
            blocks.setdefault(_block(one.link.torch[0].label), {}).setdefault(_signature(one), []).append(one)
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
    if all(_path(one.link.torch[0].label) == _path(one.link.keras[0].label) for one in group):
        return True
    if _told(group) == tuple(range(len(group))):
        return True
    ordered = all(before.keras < after.keras for before, after in itertools.pairwise(group))
    if ordered and all(_counted(labels) for labels in _labels(group)):
        return True
    if all(_says(*pair) == -CROSSED for pair in itertools.combinations(group, 2)):
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
    here, there = _labels([one, other])
    own = names.alike(here[0], there[0]) + names.alike(here[1], there[1])
    return own > names.alike(here[0], there[1]) + names.alike(here[1], there[0])


def _orders(count: int) -> list[tuple[int, ...]]:
    """The first is that of the group."""
    return list(itertools.islice(itertools.permutations(range(count)), MOST))


def _choices(groups: list[Group], image: Image) -> list[list[Entry]]:
    """Every order, the same for all groups, and every way for matrices to stand; of many those that are one for all."""
    orders = [[one for group in groups for one in _reordered(group, order, image)] for order in _orders(len(groups[0]))]
    ways = [[_ways(one.link) for one in order] for order in orders]
    every = [list(itertools.product(*way)) for way in ways]
    if sum(map(len, every)) > CHOICES:
        every = [list(zip(*way, strict=True)) for way in ways]
    return [list(itertools.chain.from_iterable(choice)) for order in every for choice in order][:CHOICES]


def _ways(made: Link) -> list[list[Entry]]:
    """All entries of a link, for each choice that it leaves."""
    if not made.doubts:
        return [made.entries]
    variables = {name for entry in made.doubts[0][0] for name in entry.keras}
    rest = [entry for entry in made.entries if not variables.intersection(entry.keras)]
    return [[*choice, *rest] for choice in made.doubts[0]]
