"""Tell units of one shape apart, whose counterparts could be exchanged.

Names go before the order of calls, so that an exchange of two layers in a port becomes visible: mapped by order, or by
what the models return, the exchange would be mapped away. Where names do not tell, every order of such units is a
choice of an ambiguity, to be tried by running.
"""

import itertools
import math
import re
from collections.abc import Hashable, Iterator, Sequence

from msgspec.structs import replace

from parity.core.groups import grouped
from parity.pairs.weights import names
from parity.pairs.weights.links import Ambiguity, Link, make_link
from parity.pairs.weights.patterns import MOST
from parity.pairs.weights.units import Unit

FEW = 4  # among so many siblings words of known meaning decide; a crossing is looked for among fewer
CHOICES = 12  # at most so many for an ambiguity of both order and orientation
CROSSED = -2  # the `link_evidence` of two links whose ends should be exchanged
Group = list[Link]


def assign_by_names(links: list[Link]) -> list[Link]:
    """Return the links with equal-shaped units assigned by their names, as far as these tell."""
    in_order = exchanged(links, _of_holders(links))
    by_parts = exchanged(in_order, _by_parts(in_order))
    by_names = _uncrossed(_by_equal_names(by_parts))
    return exchanged(by_names, _in_order_of_creation(by_names))


def ambiguities(links: list[Link]) -> list[Ambiguity]:
    """Return what only running can tell: the orders of siblings, together with the orientations of their matrices."""
    ambiguous: list[Ambiguity] = []
    neighbours = list(_adjacent(links))
    used: set[int] = set()
    for group in [*_crossing(links), *neighbours]:
        positions = {link.torch_position for link in group}
        if len(group) < 2 or used & positions or _confirmed_by_names(group):
            continue
        used |= positions
        ambiguous.append(_ambiguity([group], group in neighbours and _is_counted(group)))
    for groups in _branches([link for link in links if link.torch_position not in used]):
        used |= {link.torch_position for group in groups for link in group}
        ambiguous.append(_ambiguity(groups))
    left = (link for link in links if link.torch_position not in used)
    return [*ambiguous, *(Ambiguity(place=link.torch[0].module, choices=link.choices) for link in left if link.choices)]


def decided_by_names(links: list[Link]) -> list[Ambiguity]:
    """Return the siblings that names tell apart, with every other order of them: a port may have exchanged them."""
    return [_ambiguity([group]) for group in _adjacent(links) if len(group) < FEW and _confirmed_by_names(group)]


def _of_holders(links: list[Link]) -> Iterator[Link]:
    """Yield new links of weights that modules hold beside other modules, as layer scale in a block: in order.

    Of such a weight no order of calls tells whether it comes before what its module calls or, as in Keras's layer,
    behind it.
    """
    paths = {link.torch[0].module for link in links}
    holders = {path for path in paths if any(inner.startswith(f"{path}.") for inner in paths)}
    held = [link for link in links if link.is_single and link.torch[0].module in holders]
    for group in grouped(held, signature).values():
        order = sorted(range(len(group)), key=lambda number: group[number].keras_position)
        if any(link.round for link in group) and order != list(range(len(group))):
            yield from reordered(group, order)


def _by_parts(links: list[Link]) -> Iterator[Link]:
    """Yield new links of siblings whose names mean parts of known meaning (query, gate, left, ...)."""
    single = [link for link in links if link.is_single]
    for group in grouped(single, lambda link: (names.parent(link.torch[0].label), signature(link))).values():
        order = _order_by_parts(group) if 1 < len(group) <= FEW else None
        if order and order != tuple(range(len(group))):
            yield from reordered(group, order)


def _order_by_parts(group: Group) -> tuple[int, ...] | None:
    """Return the number of the Keras unit for each of torch's, if names tell; None if they do not.

    Names tell if each means the same part as exactly one name of the other side; the last pair may follow from the
    others.
    """
    torch_parts, keras_parts = map(names.distinctive_parts, _labels(group))
    shared = [part for part in torch_parts if part and torch_parts.count(part) == keras_parts.count(part) == 1]
    if len(shared) < len(group) - 1 or not shared:
        return None
    rest = [number for number, part in enumerate(keras_parts) if part not in shared]
    return tuple(keras_parts.index(part) if part in shared else rest[0] for part in torch_parts)


def _by_equal_names(links: list[Link]) -> list[Link]:
    """Put together units that have the same name on both sides: blocks.0.skip_conv is blocks_0_skip_conv."""
    result = list(links)
    for number, link in enumerate(result):
        if not link.is_single or _are_named_alike(link.torch[0], link.keras[0]):
            continue
        exchangeable = (i for i, each in enumerate(result) if each.is_single and signature(each) == signature(link))
        alike = (i for i in exchangeable if _are_named_alike(link.torch[0], result[i].keras[0]))
        if (candidate := next(alike, None)) is not None:
            _exchange(result, number, candidate)
    return result


def _are_named_alike(torch: Unit, keras: Unit) -> bool:
    """Return whether two units have one name; a number by which Keras counts layers is no part of one."""
    parts = r"[./]" if keras.counted else r"[./_]+"
    return re.split(parts, torch.label.lower()) == re.split(parts, keras.label.lower())


def _uncrossed(links: list[Link]) -> list[Link]:
    """Exchange the ends of two links where the names of all four ends say so."""
    result = list(links)
    single = [number for number, link in enumerate(links) if link.is_single]
    for numbers in grouped(single, lambda number: signature(links[number])).values():
        for first, second in itertools.combinations(numbers, 2):
            if _link_evidence(result[first], result[second]) == CROSSED:
                _exchange(result, first, second)
    return result


def _in_order_of_creation(links: list[Link]) -> Iterator[Link]:
    """Yield links of siblings that only Keras's counting tells apart, in order of creation: calls may have any."""
    for group in _adjacent(links):
        order = sorted(range(len(group)), key=lambda number: names.numbers(group[number].keras[0].label))
        if _is_counted(group) and order != list(range(len(group))):
            yield from reordered(group, order)


def _crossing(links: list[Link]) -> Iterator[Group]:
    """Yield units called in different orders with the nearest of their kind and shape that names do not tell apart."""
    for link in links:
        if not link.round or not link.is_single:
            continue
        others = [
            other
            for other in links
            if other.is_single
            and signature(other) == signature(link)
            and (other.torch_position < link.torch_position) != (other.keras_position < link.keras_position)
            and _link_evidence(link, other) < -CROSSED
        ]
        near = sorted(others, key=lambda other: abs(other.torch_position - link.torch_position))[: FEW - 2]
        yield sorted([link, *near], key=lambda member: member.torch_position)


def _adjacent(links: list[Link]) -> Iterator[Group]:
    """Yield siblings of one kind and shape with nothing between them in torch: perhaps parallel, in any order."""

    def kind(number: int) -> object:
        link = links[number]
        return (names.parent(link.torch[0].label), signature(link)) if link.is_single else number

    for _, run in itertools.groupby(range(len(links)), key=kind):
        group = [links[number] for number in run]
        if len(group) > 1:
            yield group


def _branches(links: list[Link]) -> Iterator[list[Group]]:
    """Yield the groups of a block whose units may lie on parallel paths: the matrices, then what follows each of them.

    The shortcut of a residual block is called before its main path on one side and after it on the other. If all
    convolutions have one shape, the order of calls is no evidence, and the norms have to go with their convolutions.
    """
    single = [link for link in links if link.is_single]
    # The module around a unit; a numbered module, such as blocks.0, is one step of the path.
    around = re.compile(r"([./]?[^./]*?[./]\d+|[./]?[^./]*)$")
    for block in grouped(single, lambda link: around.sub("", link.torch[0].label)).values():
        few = [group for group in grouped(block, signature).values() if 1 < len(group) < FEW]
        main = next((group for group in few if _is_matrix(group[0]) and not _confirmed_by_names(group)), None)
        if main:
            yield [main, *(group for group in few if group is not main and _follows(main, group))]


def _follows(main: Group, group: Group) -> bool:
    """Return whether every unit of a group directly follows one of the main group, on both sides."""
    if len(group) != len(main):
        return False
    torch = sorted([*main, *group], key=lambda link: link.torch_position)
    keras = sorted([*main, *group], key=lambda link: link.keras_position)
    return all([link in main for link in side] == [True, False] * len(main) for side in (torch, keras))


def _confirmed_by_names(group: Group) -> bool:
    """Return whether names confirm how a group is assigned."""
    ordered = all(before.keras_position < after.keras_position for before, after in itertools.pairwise(group))
    if ordered and all(differ_by_rising_numbers(labels) for labels in _labels(group)):
        return True
    pairs = list(itertools.combinations(group, 2))
    if all(_link_evidence(*pair) == -CROSSED for pair in pairs):
        return True
    return all(_nearer(*pair) for pair in pairs if ordered or pair[0].keras_position > pair[1].keras_position)


def differ_by_rising_numbers(labels: list[str]) -> bool:
    """Return whether labels differ only in numbers, in rising order: fc1 and fc2, or dense and dense_1."""
    keys = [names.numbers(label) for label in labels]
    return len({re.sub(r"[\d_]+", "", label) for label in labels}) == 1 and keys == sorted(keys)


def _nearer(first: Link, second: Link) -> bool:
    """Return whether names fit two links better than the same two with their ends exchanged."""
    torch, keras = _labels([first, second])
    own = names.similarity(torch[0], keras[0]) + names.similarity(torch[1], keras[1])
    return own > names.similarity(torch[0], keras[1]) + names.similarity(torch[1], keras[0])


def _link_evidence(first: Link, second: Link) -> int:
    """Return what the names that somebody chose say of two links: from 2, they are right, to -2, they are crossed."""
    return names.link_evidence(
        (first.torch[0].chosen, second.torch[0].chosen), (first.keras[0].chosen, second.keras[0].chosen)
    )


def _is_counted(group: Group) -> bool:
    """Return whether order of creation can say which siblings of a group belong together.

    torch must define them in the order in which it calls them, and Keras must have named their counterparts by
    counting.
    """
    defined, keras_units = [link.torch[0].defined for link in group], [link.keras[0] for link in group]
    plain = {re.sub(r"(_\d+)?$", "", unit.label) for unit in keras_units}
    return defined == sorted(defined) and all(unit.counted for unit in keras_units) and len(plain) == 1


def _ambiguity(groups: list[Group], counted: bool = False) -> Ambiguity:
    """Return a choice of entries for every order of the units and every orientation of their matrices.

    All groups take the same order; the first one is the order that they have. If there are too many choices, all
    matrices of a choice have the same orientation.
    """
    orders = itertools.islice(itertools.permutations(range(len(groups[0]))), MOST)
    variants = [[link.alternatives for group in groups for link in reordered(group, order)] for order in orders]
    if sum(math.prod(map(len, of_order)) for of_order in variants) > CHOICES:
        combinations = [list(zip(*of_order, strict=True)) for of_order in variants]
    else:
        combinations = [list(itertools.product(*of_order)) for of_order in variants]
    choices = [list(itertools.chain.from_iterable(choice)) for of_order in combinations for choice in of_order]
    return Ambiguity(place=groups[0][0].torch[0].module, choices=choices[:CHOICES], counted=counted)


def signature(link: Link) -> Hashable:
    """Return what links must have in common for their ends to be exchangeable."""
    return link.torch[0].signature, link.keras[0].signature, link.within


def _labels(group: Group) -> tuple[list[str], list[str]]:
    """Return the labels of torch's units in a group, and those of Keras's."""
    return [link.torch[0].label for link in group], [link.keras[0].label for link in group]


def _is_matrix(link: Link) -> bool:
    weight = link.torch[0].weights.get("weight")
    return weight is not None and len(weight.shape) > 1


def reordered(group: Group, order: Sequence[int]) -> Iterator[Link]:
    """Yield the links of a group with Keras's ends in another order, where such a link is possible."""
    for link, number in zip(group, order, strict=True):
        source = group[number]
        new = make_link(link.torch, source.keras)
        if new:
            yield replace(
                new, torch_position=link.torch_position, keras_position=source.keras_position, within=link.within
            )


def _exchange(links: list[Link], first: int, second: int) -> None:
    """Exchange the Keras ends of two links in a list, where both new links are possible."""
    exchanged = list(reordered([links[first], links[second]], (1, 0)))
    if len(exchanged) == 2:
        links[first], links[second] = exchanged


def exchanged(links: list[Link], new: Iterator[Link]) -> list[Link]:
    """Return the links, with new ones in place of those of the same torch units."""
    changed = {link.torch_position: link for link in new}
    return [changed.get(link.torch_position, link) for link in links]
