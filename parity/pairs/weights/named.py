"""Equal-shaped units assigned by their names: the alignment goes by the order of calls, and names go before that.

An exchange of two layers in a port is so seen as one: mapped by order, or by what the models return, it would vanish.
"""

import itertools

from parity.pairs.weights import names
from parity.pairs.weights.align import Image, Placed
from parity.pairs.weights.groups import (
    CROSSED,
    Group,
    adjacent,
    is_counted,
    is_simple,
    parent,
    path,
    reordered,
    says,
    signature,
    told,
)

FEW = 4  # siblings that words of known meaning assign


def named(placed: list[Placed], image: Image) -> list[Placed]:
    """With the siblings of a module assigned by what their names mean, where these do."""
    groups: dict[object, Group] = {}
    for one in placed:
        if is_simple(one):
            groups.setdefault((parent(one.link.torch[0]), signature(one)), []).append(one)
    changed: dict[int, Placed] = {}
    for group in groups.values():
        order = told(group) if 1 < len(group) <= FEW else None
        if order and order != tuple(range(len(group))):
            changed |= {one.torch: one for one in reordered(group, order, image)}
    by_parts = [changed.get(one.torch, one) for one in placed]
    return _in_order_of_creation(_uncrossed(_by_equal_names(by_parts, image), image), image)


def _by_equal_names(placed: list[Placed], image: Image) -> list[Placed]:
    """With units that have one and the same name on both sides put together: an exchange would be a fault."""
    found = list(placed)
    for number, one in enumerate(found):
        own = path(one.link.torch[0].label)
        if not is_simple(one) or path(one.link.keras[0].label) == own:
            continue
        for place, other in enumerate(found):
            if is_simple(other) and path(other.link.keras[0].label) == own and signature(other) == signature(one):
                exchanged = list(reordered([one, other], (1, 0), image))
                if len(exchanged) == 2:
                    found[number], found[place] = exchanged
                break
    return found


def _uncrossed(placed: list[Placed], image: Image) -> list[Placed]:
    """With the ends of two links exchanged where that is what the names of all four say."""
    groups: dict[object, list[int]] = {}
    for number, one in enumerate(placed):
        if is_simple(one):
            groups.setdefault(signature(one), []).append(number)
    found = list(placed)
    for numbers in groups.values():
        for first, second in itertools.combinations(numbers, 2):
            if says(found[first], found[second]) == CROSSED:
                exchanged = list(reordered([found[first], found[second]], (1, 0), image))
                if len(exchanged) == 2:
                    found[first], found[second] = exchanged
    return found


def _in_order_of_creation(placed: list[Placed], image: Image) -> list[Placed]:
    """With siblings that only Keras's counting tells apart in that order: a functional model calls them in any."""
    changed: dict[int, Placed] = {}
    for group in adjacent(placed):
        units = [one.link.keras[0] for one in group]
        order = sorted(range(len(group)), key=lambda number: names.numbers(units[number].label))
        if is_counted(group) and order != list(range(len(group))):
            changed |= {one.torch: one for one in reordered(group, order, image)}
    return [changed.get(one.torch, one) for one in placed]
