"""Choose among the readings of two models where names leave several, by the outcome of the whole models.

Units of one shape may be paired in the order of calls or of creation, and so may whole towers of one structure, such as
two encoders or the projections of an attention. Keras's model runs with each reading, once; right is the one with which
it returns what torch's does. Where none does, because the models differ otherwise, the reading that reproduces most of
torch's tensors is taken, and it is said that it stays open. Names go before all: readings never undo what they tell.
"""

import functools
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from parity.core.groups import by_key, grouped
from parity.core.wording import agree
from parity.pairs.weights import names
from parity.pairs.weights.equal_shapes import differ_by_rising_numbers, exchanged, reordered, signature
from parity.pairs.weights.links import Link
from parity.pairs.weights.propose import Proposal, Reading
from parity.pairs.weights.rules import around
from parity.pairs.weights.runs import Reproduced, Trials

FEW = 3  # towers of one structure that are tried in every order
MOST_RUNS = 12
MOST_NAMES = 4  # at most so many names in a sentence
ORDERS = (Reading(), Reading(keras="creation"), Reading(torch="creation", keras="creation"))
CERTAIN = 2  # `names.link_evidence` of links that are right
Propose = Callable[[Reading], Proposal]
Pairs = dict[str, tuple[str, ...]]


class Towers(NamedTuple):
    """Modules of torch's side by side whose weights are of one structure, with the links of each in one order.

    `name` is the path of the module around them without its numbers: equal layers are read in the same way.
    `are_named` says that names confirm how they are paired.
    """

    name: str
    paths: list[str]
    links: list[list[Link]]
    are_named: bool


class _Tried(NamedTuple):
    """What came of a run: whether the models agree, and how many of torch's tensors Keras's model has reproduced."""

    agrees: bool
    reproduced: int
    reading: Reading
    proposal: Proposal


def chosen(propose: Propose, trials: Trials) -> Proposal:
    """Return the proposal of the best reading, with sentences on what was open among its mapping's assumptions.

    Readings for which names speak less than for the first are left out. If some weight has no counterpart in any,
    nothing is run.
    """
    propose = functools.cache(propose)
    pairs = [_pairs(propose(reading)) for reading in ORDERS]
    readings = [reading for number, reading in enumerate(ORDERS) if pairs[number] not in pairs[:number]]
    fewest = min(len(propose(each).mapping.unplaced) for each in readings)
    readings = [each for each in readings if len(propose(each).mapping.unplaced) == fewest]
    first = propose(readings[0])
    # Names decide within a reading; a few words in common are no reason to leave out the first.
    readings = [each for each in readings if _named(propose(each)) >= _named(first)]
    if fewest or (len(readings) == 1 and not list(towers(first.links))):
        return first
    return _Choosing(propose, trials.up_to(MOST_RUNS)).best(readings)


def towers(links: Sequence[Link]) -> Iterator[Towers]:
    """Yield the modules of one structure that lie side by side, all of whose links have one unit on each side."""
    within = by_key((path, link) for link in links for path in around(link.torch[0].module))
    several = [path for path, members in within.items() if any(link.torch[0].module != path for link in members)]
    single = [path for path in several if all(link.is_single for link in within[path])]

    def structure(path: str) -> Hashable:
        return path.rpartition(".")[0], *(signature(link) for link in within[path])

    for paths in grouped(single, structure).values():
        if 1 < len(paths) <= FEW:
            members = [within[path] for path in paths]
            name = names.without_numbers(names.parent(paths[0]))
            yield Towers(name, paths, members, _are_named(paths, members))


def _exchanged(
    before: Callable[[list[Link]], list[Link]], name: str, order: Sequence[int], links: list[Link]
) -> list[Link]:
    """Return the links that `before` returns, with the counterparts of all towers of a name in another order."""
    links = before(links)
    for each in list(towers(links)):
        if each.name == name and len(each.paths) == len(order):
            new = [link for group in zip(*each.links, strict=True) for link in reordered(list(group), order)]
            links = exchanged(links, iter(new))
    return links


class _Choosing:
    """Runs of Keras's model in several readings."""

    def __init__(self, propose: Propose, trials: Trials) -> None:
        self.propose, self.trials = propose, trials
        self.notes: list[str] = []

    def best(self, readings: list[Reading]) -> Proposal:
        """Return the proposal of the best reading, first among the orders, then among those of each group of towers."""
        best = self._best(readings)
        others = [each for each in readings if each is not best.reading]
        if others and (best.reading is not readings[0] or not best.agrees):
            by = f"by the order of {best.reading.keras}"
            self.notes.append(_open(best.proposal, self.propose(others[0]), by, best.agrees))
        for each in {each.name: each for each in towers(best.proposal.links) if not each.are_named}.values():
            best = self._ordered(each, best)
        # Exchanges of towers that names tell apart, each with a sentence by torch's module.
        exchanges = (
            ({found.paths[0]: _paired(found.paths, proposal.links)}, proposal.mapping)
            for found in towers(best.proposal.links)
            for proposal in map(self.propose, _reordered(best.reading, found) if found.are_named else ())
        )
        exchange = None if best.agrees else self.trials.first(exchanges)
        mapping = best.proposal.mapping
        assumptions = [*mapping.assumptions, *self.notes]
        return replace(best.proposal, mapping=replace(mapping, assumptions=assumptions, exchanged=exchange or {}))

    def _best(self, readings: Iterable[Reading], best: _Tried | None = None) -> _Tried:
        """Try readings until the models agree, and return the best, or the one given if none is better."""
        for reading in readings:
            if best and (best.agrees or self.trials.runs >= self.trials.most):
                break
            proposal = self.propose(reading)
            values = self.trials.run(proposal.mapping).values
            reproduced = Reproduced(values).count(self.trials.torch)
            tried = _Tried(self.trials.agree(values), reproduced, reading, proposal)
            best = tried if best is None or tried[:2] > best[:2] else best
        assert best is not None
        return best

    def _ordered(self, found: Towers, first: _Tried) -> _Tried:
        """Try the towers in every other order unless the models agree, and keep the best."""
        best = self._best(_reordered(first.reading, found), first)
        by = "by order" if best is first else "by what the models return"
        certain = "" if best.agrees else "; no other order makes the models equal, so that this stays open"
        if by != "by order" or certain:  # an order that makes the models equal is no assumption
            self.notes.append(f"{_paired(found.paths, best.proposal.links)} ({by}){certain}")
        return best


def _reordered(reading: Reading, found: Towers) -> Iterator[Reading]:
    """Yield the reading with the towers in every other order as well."""
    for order in itertools.islice(itertools.permutations(range(len(found.paths))), 1, None):
        yield replace(reading, exchange=functools.partial(_exchanged, reading.exchange, found.name, order))


def _named(proposal: Proposal) -> int:
    """Return how many entries names speak for."""
    return sum(entry.by == "name" for entry in proposal.mapping.entries)


def _pairs(proposal: Proposal) -> Pairs:
    return {name: tuple(entry.keras) for entry in proposal.mapping.entries for name in entry.torch}


def _open(proposal: Proposal, other: Proposal, why: str, agreed: bool) -> str:
    """Say where two readings differ, and which was taken for what reason."""
    own, others = _pairs(proposal), _pairs(other)
    differing = [name for name in own if own[name] != others.get(name)]
    outcome = "which makes the models equal" if agreed else "no reading makes the models equal, so that this stays open"
    first, second = (_modules([each for name in differing for each in pairs.get(name, ())]) for pairs in (own, others))
    torch = _modules(differing)
    taken = f"{torch} of torch {agree(1 + torch.count(','), 'was')} taken to be {first} of keras"
    return f"{taken} ({why}, {outcome}); the other reading is {second}"


def _paired(paths: list[str], links: Sequence[Link]) -> str:
    """Say which of Keras's towers were taken for torch's at these paths."""
    ends = ([link.keras[0].module for link in links if path in around(link.torch[0].module)] for path in paths)
    keras = [_common(modules) or f"{modules[0]}..{modules[-1]}" for modules in ends]
    return f"{', '.join(paths)} of torch {agree(len(paths), 'was')} taken to be {', '.join(keras)} of keras"


def _modules(weights: Sequence[str]) -> str:
    modules = list(dict.fromkeys(re.sub(r"[./][^./]*$", "", name) for name in weights))
    return ", ".join(modules[:MOST_NAMES]) + (", ..." if len(modules) > MOST_NAMES else "")


def _are_named(paths: list[str], links: list[list[Link]]) -> bool:
    """Return whether names confirm how towers are paired: their own names, or numbers that rise on both sides."""
    labels = [[link.keras[0].label for link in group] for group in zip(*links, strict=True)]
    if all(map(differ_by_rising_numbers, [paths, *labels])):
        return True
    chosen = [_common([link.keras[0].chosen for link in members]) for members in links]
    pairs = itertools.combinations(zip(paths, chosen, strict=True), 2)
    return all(names.link_evidence(*zip(first, second, strict=True)) == CERTAIN for first, second in pairs)


def _common(labels: list[str]) -> str:
    """Return the path of the innermost module around all of some modules of Keras's."""
    parts = [label.split("/") for label in labels]
    same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))
    return "/".join(column[0] for column in same)
