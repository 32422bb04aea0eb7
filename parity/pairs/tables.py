"""Link tables of embeddings of which Keras holds a part of the rows: torch's may begin or end with rows for padding.

The names have to say that both are tables of one thing (positions, tokens, segments). Which rows Keras has is left to
running, and always told. A table with fewer rows than Keras's has no counterpart: nothing would fill the others.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from parity.pairs.weights import names
from parity.pairs.weights.links import Link
from parity.pairs.weights.units import Unit
from parity.trace.mapping import Entry
from parity.trace.survey import Weight

FEW = 3  # up to so many further rows, the part may begin at any of them; of more, it is the first or the last rows
COMMON = names.HOLDERS | {"embedding"}  # words that tables of different things share


def link_tables(torch: Sequence[Unit], keras: Sequence[Unit], links: Iterable[Link]) -> list[Link]:
    """Return links of the tables that `links` leave over, each with a choice for every part that Keras may have."""
    used = {name for link in links for entry in link.entries for name in (*entry.torch, *entry.keras)}
    left = [[unit for unit in side if _is_table(unit) and _table(unit).name not in used] for side in (torch, keras)]
    likely = sorted(itertools.product(*left), key=lambda pair: -names.similarity(pair[0].label, pair[1].label))
    found: list[Link] = []
    for ours, theirs in likely:
        taken = {id(unit) for link in found for unit in (*link.torch, *link.keras)}
        if _may_be_part(ours, theirs) and not taken & {id(ours), id(theirs)}:
            found.append(_link(ours, theirs))
    return found


def _is_table(unit: Unit) -> bool:
    return unit.family == "embedding" and not unit.alias and list(unit.weights) == ["weight"]


def _table(unit: Unit) -> Weight:
    return unit.weights["weight"]


def _may_be_part(torch: Unit, keras: Unit) -> bool:
    """Return whether Keras's table may be a part of torch's: by its shape, its name, and what depends on it."""
    ours, theirs = _table(torch).shape, _table(keras).shape
    shared = (names.distinctive_words(torch.label) & names.distinctive_words(keras.label)) - COMMON
    return ours[1:] == theirs[1:] and ours[0] > theirs[0] and bool(shared) and torch.unused == keras.unused


def _link(torch: Unit, keras: Unit) -> Link:
    parts = _parts(_table(torch).shape[0], _table(keras).shape[0])
    choices = [[Entry(torch=[_table(torch).name], keras=[_table(keras).name], slice=part)] for part in parts]
    return Link(torch=(torch,), keras=(keras,), entries=choices[0], choices=choices)


def _parts(rows: int, wanted: int) -> Iterator[str]:
    """Yield the slices of so many consecutive rows: the last, the first, and those between if they are few."""
    further = rows - wanted
    yield f"{further}:"
    yield f":{wanted}"
    if further <= FEW:
        yield from (f"{start}:{start + wanted}" for start in range(1, further))
