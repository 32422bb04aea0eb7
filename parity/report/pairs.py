"""How much of two models corresponds: what a comparison of a user's pair could look into."""

from collections import Counter

import msgspec

from parity.pairs.counterparts import is_output
from parity.pairs.mapping import Match, Matching
from parity.results import Result

MOST_NAMES = 6  # tensors without a counterpart that are printed


class Matched(Result):
    """Tensors that modules returned, without the whole models' own. `by`: how many were found in which way."""

    matched: int = 0
    by: dict[str, int] = msgspec.field(default_factory=dict)
    torch_alone: list[str] = msgspec.field(default_factory=list)
    keras_alone: list[str] = msgspec.field(default_factory=list)


def summary(matching: Matching) -> Matched:
    """What the report says of a matching."""
    inner: list[Match] = [match for match in matching.matches if not is_output(match.torch)]
    counts = Counter(match.by for match in inner)
    by = {way: counts[way] for way in ("weights", "value", "order") if counts[way]}
    return Matched(matched=len(inner), by=by, torch_alone=matching.torch_alone, keras_alone=matching.keras_alone)


def lines(found: Matched) -> list[str]:
    """The same for the terminal."""
    ways = ", ".join(f"{count} by {way}" for way, count in found.by.items())
    plural = "" if found.matched == 1 else "s"
    first = f"{found.matched} activation{plural} matched{f' ({ways})' if ways else ''}"
    alone = [
        f"{len(keys)} of {side} alone: {', '.join(keys[:MOST_NAMES])}{', ...' if len(keys) > MOST_NAMES else ''}"
        for side, keys in (("torch", found.torch_alone), ("keras", found.keras_alone))
        if keys
    ]
    return [first, *alone]
