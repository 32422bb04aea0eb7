"""Find equal-shaped units that names do not tell apart.

Every order of such units is a choice of an ambiguity, to be tried by running.
"""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from parity.pairs.weights import names
from parity.pairs.weights.align import ImageOf, PlacedLink
from parity.pairs.weights.families import MOST
from parity.pairs.weights.groups import (
    CROSSED,
    Group,
    adjacent,
    is_counted,
    is_simple,
    labels,
    link_evidence,
    order_by_parts,
    path,
    reordered,
    signature,
)
from parity.pairs.weights.links import Link
from parity.trace.mapping import Entry

FEW = 4  # a crossing is looked for among fewer siblings than this
CHOICES = 12  # at most so many for an ambiguity of both order and orientation


class AmbiguousUnits(NamedTuple):
    """Units at a module of torch's that can be mapped in several ways.

    `counted` says that the first choice follows the order in which both sides create the units.
    """

    place: str
    choices: list[list[Entry]]
    counted: bool = False


def ambiguities(placed: list[PlacedLink], image: ImageOf) -> list[AmbiguousUnits]:
    """Return what only running can tell: the orders of siblings, together with the orientations of their matrices."""
    ambiguous: list[AmbiguousUnits] = []
    neighbours = list(adjacent(placed))
    used: set[int] = set()
    for group in [*_crossing(placed), *neighbours]:
        positions = {placed_link.torch for placed_link in group}
        if len(group) < 2 or used & positions or _confirmed_by_names(group):
            continue
        used |= positions
        counted = group in neighbours and is_counted(group)
        ambiguous.append(AmbiguousUnits(group[0].link.torch[0].module, _choices([group], image), counted))
    for groups in _branches([placed_link for placed_link in placed if placed_link.torch not in used]):
        used |= {placed_link.torch for group in groups for placed_link in group}
        ambiguous.append(AmbiguousUnits(groups[0][0].link.torch[0].module, _choices(groups, image)))
    orientations = (
        AmbiguousUnits(placed_link.link.torch[0].module, placed_link.link.ambiguities[0])
        for placed_link in placed
        if placed_link.torch not in used and placed_link.link.ambiguities
    )
    return [*ambiguous, *orientations]


def decided_by_names(placed: list[PlacedLink], image: ImageOf) -> list[AmbiguousUnits]:
    """Return the siblings that names tell apart, with every other order of them: a port may have exchanged them."""
    groups = (group for group in adjacent(placed) if len(group) < FEW and _confirmed_by_names(group))
    return [AmbiguousUnits(group[0].link.torch[0].module, _choices([group], image)) for group in groups]


def _crossing(placed: list[PlacedLink]) -> Iterator[Group]:
    """Yield units that the two sides call in different orders, with the nearest others of their kind and shape."""
    for placed_link in placed:
        if not placed_link.round or not is_simple(placed_link):
            continue
        others = [
            other
            for other in placed
            if is_simple(other)
            and signature(other) == signature(placed_link)
            and (other.torch < placed_link.torch) != (other.keras < placed_link.keras)
        ]
        near = sorted(others, key=lambda other: abs(other.torch - placed_link.torch))[: FEW - 2]
        yield sorted([placed_link, *near], key=lambda member: member.torch)


def _branches(placed: list[PlacedLink]) -> Iterator[list[Group]]:
    """Yield the groups of a block whose units may lie on parallel paths: the matrices, then what follows each of them.

    The shortcut of a residual block is called before its main path on one side and after it on the other. If all
    convolutions have one shape, the order of calls is no evidence, and the norms have to go with their convolutions.
    """
    blocks: dict[str, dict[object, Group]] = {}
    for placed_link in placed:
        if is_simple(placed_link):
            blocks.setdefault(_block(placed_link.link.torch[0].label), {}).setdefault(
                signature(placed_link), []
            ).append(placed_link)
    for groups in blocks.values():
        few = [group for group in groups.values() if 1 < len(group) < FEW]
        main = next((group for group in few if _is_matrix(group[0]) and not _confirmed_by_names(group)), None)
        if main:
            yield [main, *(group for group in few if group is not main and _follows(main, group))]


def _block(label: str) -> str:
    """Return the label of the module around a unit; a numbered module, such as blocks.0, is one step of the path."""
    return re.sub(r"([./]?[^./]*?[./]\d+|[./]?[^./]*)$", "", label)


def _is_matrix(placed_link: PlacedLink) -> bool:
    weight = placed_link.link.torch[0].weights.get("weight")
    return weight is not None and len(weight.shape) > 1


def _follows(main: Group, group: Group) -> bool:
    """Return whether every unit of a group directly follows one of the main group, on both sides."""
    if len(group) != len(main):
        return False
    torch = sorted([*main, *group], key=lambda placed_link: placed_link.torch)
    keras = sorted([*main, *group], key=lambda placed_link: placed_link.keras)
    return all([placed_link in main for placed_link in side] == [True, False] * len(main) for side in (torch, keras))


def _confirmed_by_names(group: Group) -> bool:
    """Return whether names confirm how a group is assigned."""
    if all(path(placed_link.link.torch[0].label) == path(placed_link.link.keras[0].label) for placed_link in group):
        return True
    if order_by_parts(group) == tuple(range(len(group))):
        return True
    ordered = all(before.keras < after.keras for before, after in itertools.pairwise(group))
    if ordered and all(_differ_by_rising_numbers(labels) for labels in labels(group)):
        return True
    if all(link_evidence(*pair) == -CROSSED for pair in itertools.combinations(group, 2)):
        return True
    pairs = itertools.combinations(group, 2)
    return all(_nearer(*pair) for pair in pairs if ordered or pair[0].keras > pair[1].keras)


def _differ_by_rising_numbers(labels: list[str]) -> bool:
    """Return whether labels differ only in numbers, in rising order: fc1 and fc2, or dense and dense_1."""
    without_numbers = {re.sub(r"[\d_]+", "", label) for label in labels}
    keys = [names.numbers(label) for label in labels]
    return len(without_numbers) == 1 and keys == sorted(keys)


def _nearer(first: PlacedLink, second: PlacedLink) -> bool:
    """Return whether names fit two links better than the same two with their ends exchanged."""
    torch_labels, keras_labels = labels([first, second])
    own = names.similarity(torch_labels[0], keras_labels[0]) + names.similarity(torch_labels[1], keras_labels[1])
    return own > names.similarity(torch_labels[0], keras_labels[1]) + names.similarity(torch_labels[1], keras_labels[0])


def _orders(count: int) -> list[tuple[int, ...]]:
    """Return orders of so many units; the first one is that of the group."""
    return list(itertools.islice(itertools.permutations(range(count)), MOST))


def _choices(groups: list[Group], image: ImageOf) -> list[list[Entry]]:
    """Return a choice of entries for every order of the units and every orientation of their matrices.

    All groups take the same order. If there are too many choices, all matrices of a choice have the same orientation.
    """
    orders = [
        [placed_link for group in groups for placed_link in reordered(group, order, image)]
        for order in _orders(len(groups[0]))
    ]
    variants = [[_variants(placed_link.link) for placed_link in order] for order in orders]
    combinations = [list(itertools.product(*variants_of_order)) for variants_of_order in variants]
    if sum(map(len, combinations)) > CHOICES:
        combinations = [list(zip(*variants_of_order, strict=True)) for variants_of_order in variants]
    return [list(itertools.chain.from_iterable(choice)) for order in combinations for choice in order][:CHOICES]


def _variants(link: Link) -> list[list[Entry]]:
    """Return all entries of a link, once for each choice that it leaves open."""
    if not link.ambiguities:
        return [link.entries]
    variables = {name for entry in link.ambiguities[0][0] for name in entry.keras}
    rest = [entry for entry in link.entries if not variables.intersection(entry.keras)]
    return [[*choice, *rest] for choice in link.ambiguities[0]]
