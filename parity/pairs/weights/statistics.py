"""Find the mean and variance of the training data that both models hold, as a Normalization layer of Keras's does.

Torch's buffers may hold the variance or the deviation. Values tell what corresponds, up to what float32 sums lose.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from parity.core.groups import grouped
from parity.pairs.untrained.built import Built
from parity.pairs.weights.links import Link, make_link
from parity.pairs.weights.units import Unit, bare_unit
from parity.runtime.survey import Weight
from parity.trace.mapping import Entry, Unlike

AXIS = "normalization.axis"


class _Held(NamedTuple):
    """A mean and a variance, or what may be that."""

    mean: Unit
    spread: Unit


def links(torch: Iterable[Unit], keras: Iterable[Unit], built: Built) -> Iterator[Link]:
    """Yield the links of each mean and variance of Keras's with buffers of torch's for the same data."""
    left = list(_torch_pairs(torch))
    for theirs in _keras_pairs(keras):
        for ours in left:
            if same := _same(list(map(_link, ours, theirs)), built):
                yield from same
                left = [pair for pair in left if pair.mean.module != ours.mean.module]
                break


def of_all(torch: Iterable[Weight], keras: Iterable[Weight], built: Built) -> dict[str, Unlike]:
    """Return by torch's name of the mean where one side has one mean of all features, and the other one for each."""
    found = {}
    pairs = itertools.product(_torch_pairs(map(bare_unit, torch)), _keras_pairs(map(bare_unit, keras)))
    for ours, theirs in pairs:
        names = [[unit.weights["weight"].name for unit in side] for side in (ours, theirs)]
        if built.has(Entry(torch=names[0], keras=names[1])) and (sizes := built.pooled(*names)):
            told = ["one of all features" if size == 1 else f"one for each of {size} features" for size in sizes]
            said = f"{names[0][0]} and {names[1][0]} are means of the same data, as are the variances"
            found[names[0][0]] = Unlike(torch=told[0], keras=told[1], said=said, cause=AXIS)
    return found


def _torch_pairs(units: Iterable[Unit]) -> Iterator[_Held]:
    """Yield any two tensors of a module in both orders: names do not tell which is the mean."""
    for held in grouped(units, lambda unit: unit.module).values():
        yield from itertools.starmap(_Held, itertools.permutations(held, 2))


def _keras_pairs(units: Iterable[Unit]) -> Iterator[_Held]:
    """Yield mean and variance of each layer that has both."""
    for held in grouped(units, lambda unit: unit.module).values():
        by_role = {unit.weights["weight"].role: unit for unit in held}
        if "mean" in by_role and "variance" in by_role:
            yield _Held(by_role["mean"], by_role["variance"])


def _link(torch: Unit, keras: Unit) -> Link | None:
    return make_link([torch], [keras])


def _same(candidates: Sequence[Link | None], built: Built) -> list[Link]:
    """Return the links of a mean and a variance with the entries by which both builders' values agree, or none."""
    means, spreads = ([entry for way in link.alternatives for entry in way] if link else [] for link in candidates)
    for mean, spread, combine in itertools.product(means, spreads, ("join", "square")):
        entries = [replace(mean, by="value"), replace(spread, by="value", combine=combine)]
        if mean.rearrange == spread.rearrange and built.same_statistics(*entries):
            both = zip(candidates, entries, strict=True)
            return [replace(link, entries=[entry], choices=[]) for link, entry in both if link]
    return []
