"""Group links of equal-shaped units, whose ends could be exchanged, and tell what names say about them."""

import itertools
import re
from collections.abc import Iterator, Sequence

from parity.pairs.weights import names
from parity.pairs.weights.align import ImageOf, PlacedLink
from parity.pairs.weights.links import link
from parity.pairs.weights.units import Unit, distinctive_parts

CROSSED = -2  # the `link_evidence` of two links whose ends should be exchanged
Group = list[PlacedLink]


def is_simple(placed: PlacedLink) -> bool:
    """Return whether a link has one unit on each side."""
    return len(placed.link.torch) == len(placed.link.keras) == 1


def parent(unit: Unit) -> str:
    """Return the label of the module around a unit."""
    return re.sub(r"[./]?[^./]*$", "", unit.label)


def signature(placed: PlacedLink) -> object:
    """Return what links must have in common for their ends to be exchangeable."""
    return placed.link.torch[0].signature, placed.link.keras[0].signature


def labels(group: Group) -> tuple[list[str], list[str]]:
    """Return the labels of torch's units in a group, and those of Keras's."""
    return [placed.link.torch[0].label for placed in group], [placed.link.keras[0].label for placed in group]


def path(label: str) -> tuple[str, ...]:
    """Split a label into the names that it is made of."""
    return tuple(re.split(r"[./]", label))


def link_evidence(first: PlacedLink, second: PlacedLink) -> int:
    """Return what the names that somebody chose say of two links: from 2, they are right, to -2, they are crossed."""
    ends = [(first.link.torch[0].chosen, second.link.torch[0].chosen)]
    ends += [(first.link.keras[0].chosen, second.link.keras[0].chosen)]
    return names.link_evidence(*ends)


def order_by_parts(group: Group) -> tuple[int, ...] | None:
    """Return the number of the Keras unit for each of torch's, if names tell; None if they do not.

    Names tell if each means the same part as exactly one name of the other side; the last pair may follow from the
    others.
    """
    torch_parts, keras_parts = map(distinctive_parts, labels(group))
    shared = [part for part in torch_parts if part and torch_parts.count(part) == keras_parts.count(part) == 1]
    if len(shared) < len(group) - 1 or not shared:
        return None
    rest = [number for number, part in enumerate(keras_parts) if part not in shared]
    return tuple(keras_parts.index(part) if part in shared else rest[0] for part in torch_parts)


def reordered(group: Group, order: Sequence[int], image: ImageOf) -> Iterator[PlacedLink]:
    """Yield the links of a group with Keras's ends in another order, where such a link is possible."""
    for placed, number in zip(group, order, strict=True):
        source = group[number]
        new_link = link(placed.link.torch, source.link.keras, image(placed.link.torch[0]))
        if new_link:
            yield PlacedLink(new_link, placed.torch, source.keras, 0)


def adjacent(placed: list[PlacedLink]) -> Iterator[Group]:
    """Yield groups of siblings of one kind and shape with nothing between them on torch's side.

    Such siblings may be parallel branches, whose order of calls is arbitrary.
    """
    simple = [link_or_none if is_simple(link_or_none) else None for link_or_none in placed]
    keys = [
        (link_or_none and (parent(link_or_none.link.torch[0]), signature(link_or_none))) or number
        for number, link_or_none in enumerate(simple)
    ]
    for _, run in itertools.groupby(range(len(placed)), key=lambda number: keys[number]):
        group = [link_or_none for number in run if (link_or_none := simple[number])]
        if len(group) > 1:
            yield group


def is_counted(group: Group) -> bool:
    """Return whether order of creation can say which siblings of a group belong together.

    torch must define them in the order in which it calls them, and Keras must have named their counterparts by
    counting.
    """
    torch_units, keras_units = ([getattr(placed.link, side)[0] for placed in group] for side in ("torch", "keras"))
    defined = [unit.defined for unit in torch_units]
    return defined == sorted(defined) and all(unit.counted for unit in keras_units) and len(_plain(keras_units)) == 1


def _plain(units: Sequence[Unit]) -> set[str]:
    return {re.sub(r"(_\d+)?$", "", unit.label) for unit in units}
