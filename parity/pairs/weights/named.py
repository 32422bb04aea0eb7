"""Assign equal-shaped units by their names, which go before the order of calls.

So an exchange of two layers in a port becomes visible. If such layers were mapped by order or by what the models
return, the exchange would be mapped away.
"""

import itertools

from parity.pairs.weights import names
from parity.pairs.weights.align import ImageOf, PlacedLink
from parity.pairs.weights.groups import (
    CROSSED,
    Group,
    adjacent,
    is_counted,
    is_simple,
    link_evidence,
    order_by_parts,
    parent,
    path,
    reordered,
    signature,
)

FEW = 4  # up to so many siblings are assigned by words of known meaning


def named(placed: list[PlacedLink], image: ImageOf) -> list[PlacedLink]:
    """Return the links with equal-shaped units assigned by their names, as far as these tell."""
    groups: dict[object, Group] = {}
    for placed_link in placed:
        if is_simple(placed_link):
            groups.setdefault((parent(placed_link.link.torch[0]), signature(placed_link)), []).append(placed_link)
    changed: dict[int, PlacedLink] = {}
    for group in groups.values():
        order = order_by_parts(group) if 1 < len(group) <= FEW else None
        if order and order != tuple(range(len(group))):
            changed |= {placed_link.torch: placed_link for placed_link in reordered(group, order, image)}
    by_parts = [changed.get(placed_link.torch, placed_link) for placed_link in placed]
    return _in_order_of_creation(_uncrossed(_by_equal_names(by_parts, image), image), image)


def _by_equal_names(placed: list[PlacedLink], image: ImageOf) -> list[PlacedLink]:
    """Put together units that have the same name on both sides."""
    links = list(placed)
    for number, placed_link in enumerate(links):
        torch_path = path(placed_link.link.torch[0].label)
        if not is_simple(placed_link) or path(placed_link.link.keras[0].label) == torch_path:
            continue
        for candidate_number, candidate in enumerate(links):
            if (
                is_simple(candidate)
                and path(candidate.link.keras[0].label) == torch_path
                and signature(candidate) == signature(placed_link)
            ):
                exchanged = list(reordered([placed_link, candidate], (1, 0), image))
                if len(exchanged) == 2:
                    links[number], links[candidate_number] = exchanged
                break
    return links


def _uncrossed(placed: list[PlacedLink], image: ImageOf) -> list[PlacedLink]:
    """Exchange the ends of two links where the names of all four ends say so."""
    groups: dict[object, list[int]] = {}
    for number, placed_link in enumerate(placed):
        if is_simple(placed_link):
            groups.setdefault(signature(placed_link), []).append(number)
    links = list(placed)
    for numbers in groups.values():
        for first, second in itertools.combinations(numbers, 2):
            if link_evidence(links[first], links[second]) == CROSSED:
                exchanged = list(reordered([links[first], links[second]], (1, 0), image))
                if len(exchanged) == 2:
                    links[first], links[second] = exchanged
    return links


def _in_order_of_creation(placed: list[PlacedLink], image: ImageOf) -> list[PlacedLink]:
    """Put siblings that only Keras's counting tells apart into the order of creation.

    A functional model may call its layers in any order.
    """
    changed: dict[int, PlacedLink] = {}
    for group in adjacent(placed):
        units = [placed_link.link.keras[0] for placed_link in group]
        order = sorted(range(len(group)), key=lambda number: names.numbers(units[number].label))
        if is_counted(group) and order != list(range(len(group))):
            changed |= {placed_link.torch: placed_link for placed_link in reordered(group, order, image)}
    return [changed.get(placed_link.torch, placed_link) for placed_link in placed]
