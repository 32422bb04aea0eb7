"""Find the mean and variance of the training data that both models hold, as a Normalization layer of Keras's does.

Torch's buffers may hold the variance or the deviation. Values tell what corresponds, up to what float32 sums lose.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from parity.core.groups import grouped
from parity.pairs.untrained.built import Built
from parity.pairs.weights.links import Link, make_link
from parity.pairs.weights.units import Unit, bare_unit
from parity.runtime.survey import Weight
from parity.trace.mapping import Entry, Unlike

AXIS = "normalization.axis"
LIKE = 0.25  # deviations: up to so much apart are means that may be of one kind of data


class _Held(NamedTuple):
    """A mean and a variance, or what may be that."""

    mean: Unit
    spread: Unit


def links(torch: Iterable[Unit], keras: Iterable[Unit], built: Built) -> Iterator[Link]:
    """Yield the links of each mean and variance of Keras's with buffers of torch's for such data."""
    left = list(_torch_pairs(torch))
    for theirs in _keras_pairs(keras):
        found = _likest([list(map(_link, ours, theirs)) for ours in left], built)
        yield from found
        left = [pair for pair in left if pair.mean.module not in {link.torch[0].module for link in found}]


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


def _likest(candidates: Iterable[Sequence[Link | None]], built: Built) -> list[Link]:
    """Return the links of a mean and a variance that are the least apart, or none.

    What differs by more than rounding is told from what a model is given for other data by running it.
    """
    best, found = LIKE, []
    for both in candidates:
        means, spreads = ([entry for way in link.alternatives for entry in way] if link else [] for link in both)
        for mean, plain, combine in itertools.product(means, spreads, ("join", "square")):
            spread = replace(plain, combine=combine)
            how = built.statistics(mean, spread) if mean.rearrange == spread.rearrange else None
            if how and how.apart < best:
                entries = replace(mean, by=_by(how.mean)), replace(spread, by=_by(how.variance))
                pairs = zip(both, entries, strict=True)
                best, found = how.apart, [replace(link, entries=[entry], choices=[]) for link, entry in pairs if link]
    return found


def _by(is_same: bool) -> Literal["value", "order"]:
    return "value" if is_same else "order"
