"""A closer look at a large model: which tensors are recorded whole once summaries have told where the sides part."""

import math
from collections.abc import Iterable
from typing import Final

from parity.config.pair import UNKNOWN
from parity.results import CaseResult, Divergence
from parity.trace import keys
from parity.trace.manifest import Trace

MOST: Final = 1 << 23  # elements of large tensors, each counted once, that are recorded whole


def tensors(first: Divergence, torch: Trace, keras: Trace) -> list[str]:
    """Return the keys of the tensors nearest to a divergence in the order of the forward pass, as many as fit.

    Nearest are those of its own module, then those of the module called before it, after it, and so on. The traces hold
    summaries. Keys that are one tensor on either side are chosen together, so that both sides hold them alike.
    """
    manifests = torch.manifest, keras.manifest
    sizes = {key: shape for each in manifests for held in each.summarised.values() for key, shape in held.items()}
    same = _same(pair for each in manifests for held in each.aliases.values() for pair in held.items())
    calls = torch.open("high", keys.step_file(first.step or 0))
    owners = [keys.owner(*keys.split(key)) for key in calls if key.startswith("activation/")]
    order = {owner: number for number, owner in enumerate(owners)}
    last = len(owners)
    at = order.get(keys.owner(first.kind, first.name), last)

    def distance(key: str) -> tuple[int, bool]:
        own = order.get(keys.owner(*keys.split(key)), last)
        return abs(own - at), own > at

    chosen, room = dict[str, None](), MOST
    for key in sorted(sizes, key=distance):
        together = same.get(key, {key})
        if key not in chosen and (size := sum(math.prod(sizes.get(each, ())) for each in together)) <= room:
            chosen |= dict.fromkeys(sorted(together))
            room -= size
    return list(chosen)


def _same(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return, by key, all keys that pairs of equal ones join to it."""
    same: dict[str, set[str]] = {}
    for alias, key in pairs:
        joined = same.get(alias, {alias}) | same.get(key, {key})
        same |= dict.fromkeys(joined, joined)
    return same


def is_settled(result: CaseResult, torch: Trace) -> bool:
    """Return whether a closer look has told all: what differs first is whole in the trace, and all causes are named."""
    first = result.first_divergence
    named = bool(result.causes) and all(cause.id != UNKNOWN for cause in result.causes)
    return named and first is not None and keys.stored(first.kind, first.name) not in torch.manifest.brief
