"""Judge what is left over once all weights that fit are linked: parts of tables, and weights without a counterpart.

Keras may hold a part of the rows of a table of embeddings: torch's may begin or end with rows for padding. The names
have to say that both are tables of one thing (positions, tokens, segments). Which rows Keras has is left to running,
and always told. A table with fewer rows than Keras's has no counterpart: nothing would fill the others.

Keras's tables that nothing ever changes need no counterpart, nor do weights that change nothing that is compared: those
that take part in nothing, and zeros which training cannot move. But one of the size of a weight that the other side
uses and misses may be the one that was meant: both are then listed, each as a candidate for the other.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from parity.pairs.weights import names
from parity.pairs.weights.links import Link
from parity.pairs.weights.units import Unit, one_bias
from parity.runtime.survey import Survey, Weight
from parity.trace.mapping import Entry, Mapping, Unplaced

FEW = 3  # up to so many further rows, the part may begin at any of them; of more, it is the first or the last rows
COMMON = names.HOLDERS | {"embedding"}  # words that tables of different things share
CANDIDATES = 5  # at most so many are listed for a weight without a counterpart
ONE_BIAS = "PyTorch's GRU computes what Keras's does with reset_after=True; this layer has reset_after=False"


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
            slices = _parts(table.shape[0], part.shape[0])
            choices = [[Entry(torch=[table.name], keras=[part.name], slice=rows)] for rows in slices]
            found.append(Link(torch=(ours,), keras=(theirs,), entries=choices[0], choices=choices))
    return found


def _parts(rows: int, wanted: int) -> Iterator[str]:
    """Yield the slices of so many consecutive rows: the last, the first, and those between if they are few."""
    further = rows - wanted
    yield f"{further}:"
    yield f":{wanted}"
    if further <= FEW:
        yield from (f"{start}:{start + wanted}" for start in range(1, further))


def alone(surveys: tuple[Survey, Survey], left: Sequence[Sequence[Weight]], entries: list[Entry]) -> Mapping:
    """Return the mapping with the weights that are left on both sides, torch's and Keras's, when `entries` map others.

    Those that need no counterpart are told apart: Keras's own tables and states, unused ones and zeros.
    """
    torch, keras = surveys
    missed = set(map(_size, left[0]))  # a table or a state of Keras's own has the size of none of these
    fixed = [weight.name for weight in left[1] if weight.fixed and _size(weight) not in missed]
    left = [left[0], [weight for weight in left[1] if weight.name not in fixed]]
    unused = {
        survey.side: list(_needless(survey.unused, left[side], surveys[1 - side], left[1 - side]))
        for side, survey in enumerate(surveys)
    }
    still = list(_needless(keras.still, left[1], torch, left[0]))
    needless = {*still, *unused["torch"], *unused["keras"]}
    needing = [[weight for weight in weights if weight.name not in needless] for weights in left]
    missing = [*_unplaced(surveys, needing, entries), *_unplaced(surveys[::-1], needing[::-1], entries)]
    unused = {side: names for side, names in unused.items() if names}
    return Mapping(entries=entries, unplaced=missing, constants=fixed, unused=unused, still=still)


def _needless(
    candidates: Iterable[str], weights: Iterable[Weight], other: Survey, missing: Iterable[Weight]
) -> Iterator[str]:
    """Yield those of the candidates that are weights of no size that the other side uses and misses."""
    names_of_candidates = set(candidates)
    wanted = {_size(weight) for weight in missing if weight.name not in other.unused}
    for weight in weights:
        if weight.name in names_of_candidates and _size(weight) not in wanted:
            yield weight.name


def _unplaced(
    surveys: Sequence[Survey], needing: Sequence[Sequence[Weight]], entries: Sequence[Entry]
) -> Iterator[Unplaced]:
    """Yield the first side's weights, each with candidates: the other side's free weights of the same size."""
    for weight in needing[0]:
        free = sorted(needing[1], key=lambda candidate: -names.similarity(weight.name, candidate.name))
        candidates = [each.name for each in free if _size(each) == _size(weight)][:CANDIDATES]
        yield Unplaced(
            side=surveys[0].side,
            name=weight.name,
            shape=weight.shape,
            candidates=candidates,
            note=_note(weight, surveys, entries, bool(candidates)),
        )


def _note(weight: Weight, surveys: Sequence[Survey], entries: Sequence[Entry], has_candidates: bool) -> str:
    """Return what may explain that a weight has no counterpart: that of its module lacks it."""
    own, other = surveys
    if weight.role == "bias" and one_bias(own, weight.module):
        return ONE_BIAS
    if has_candidates:
        return ""
    of_module = {each.name for each in own.weights if each.module == weight.module}
    ours, theirs = (own.side, other.side)
    found = {name for e in entries if of_module.intersection(getattr(e, ours)) for name in getattr(e, theirs)}
    modules = {each.module for each in other.weights if each.name in found}
    return f"its module's counterpart, {modules.pop()} of {theirs}, has no such weight" if len(modules) == 1 else ""


def _size(weight: Weight) -> int:
    return math.prod(weight.shape)
