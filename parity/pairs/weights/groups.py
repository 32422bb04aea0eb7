"""Links of equal-shaped units, whose ends could stand in for each other, and what names say of them."""

import itertools
import re
from collections.abc import Iterator, Sequence

from parity.pairs.weights import names
from parity.pairs.weights.align import Image, Placed
from parity.pairs.weights.links import link
from parity.pairs.weights.units import Unit, telling

CROSSED = -2  # what names say of two links whose ends should be exchanged
Group = list[Placed]


def is_simple(one: Placed) -> bool:
    """Whether a link is of one unit on each side."""
    return len(one.link.torch) == len(one.link.keras) == 1


def parent(unit: Unit) -> str:
    """The label of what is around a unit."""
    return re.sub(r"[./]?[^./]*$", "", unit.label)


def signature(one: Placed) -> object:
    """Links of one signature can have their ends exchanged."""
    return one.link.torch[0].signature, one.link.keras[0].signature


def labels(group: Group) -> tuple[list[str], list[str]]:
    """Those of torch's units of a group, and those of Keras's."""
    return [one.link.torch[0].label for one in group], [one.link.keras[0].label for one in group]


def path(label: str) -> tuple[str, ...]:
    """The names that a label is made of."""
    return tuple(re.split(r"[./]", label))


def says(one: Placed, other: Placed) -> int:
    """What the names that somebody chose say of two links: 2 that they are right, -2 that they are crossed."""
    ends = [(one.link.torch[0].chosen, other.link.torch[0].chosen)]
    ends += [(one.link.keras[0].chosen, other.link.keras[0].chosen)]
    return names.says(*ends)


def told(group: Group) -> tuple[int, ...] | None:
    """The Keras unit for each of torch's, where each has a name that means the same part; all but one are enough."""
    here, there = map(telling, labels(group))
    shared = [part for part in here if part and here.count(part) == there.count(part) == 1]
    if len(shared) < len(group) - 1 or not shared:
        return None
    rest = [number for number, part in enumerate(there) if part not in shared]
    return tuple(there.index(part) if part in shared else rest[0] for part in here)


def reordered(group: Group, order: Sequence[int], image: Image) -> Iterator[Placed]:
    """The links of a group with Keras's ends in another order, as far as there is a link."""
    for one, number in zip(group, order, strict=True):
        other = group[number]
        made = link(one.link.torch, other.link.keras, image(one.link.torch[0]))
        if made:
            yield Placed(made, one.torch, other.keras, 0)


def adjacent(placed: list[Placed]) -> Iterator[Group]:
    """Siblings of one kind and shape with nothing between them on torch's side: branches side by side, maybe."""
    simple = [one if is_simple(one) else None for one in placed]
    keys = [(one and (parent(one.link.torch[0]), signature(one))) or number for number, one in enumerate(simple)]
    for _, run in itertools.groupby(range(len(placed)), key=lambda number: keys[number]):
        group = [one for number in run if (one := simple[number])]
        if len(group) > 1:
            yield group


def is_counted(group: Group) -> bool:
    """Whether torch defines siblings in the order in which it calls them, and Keras named their counterparts."""
    here, there = ([getattr(one.link, side)[0] for one in group] for side in ("torch", "keras"))
    defined = [unit.defined for unit in here]
    return defined == sorted(defined) and all(unit.counted for unit in there) and len(_plain(there)) == 1


def _plain(units: Sequence[Unit]) -> set[str]:
    return {re.sub(r"(_\d+)?$", "", unit.label) for unit in units}
