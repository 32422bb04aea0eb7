"""What is said of moving averages of weights, from the parameters of both sides before and after the first step."""

from typing import Any

import numpy as np
import pytest
from msgspec import UNSET

from parity.config.pair import UNKNOWN
from parity.pairs.causes.training import name_averages
from parity.results import CaseResult, Cause

OWN, MOVED, OTHER = np.random.default_rng(0).normal(size=(3, 4, 5))
NEW, OLD = "the updated weights", "the weights before the update"


class Recorded:
    """A side of a recording: `target` is an average of `own`, which an optimizer moves."""

    def __init__(self, start: Any, after: Any) -> None:
        self._held = {None: {"own": OWN, "target": start}, 0: {"own": MOVED, "target": after}}

    def whole(self) -> "Recorded":
        return self

    def of_kind(self, kind: str, step: int | None) -> dict[str, Any]:
        return self._held[step] if kind == "parameter" else {}


def average(rate: float, start: Any, source: Any) -> Recorded:
    return Recorded(start, rate * start + (1 - rate) * source)


@pytest.mark.parametrize(
    ("torch", "keras", "told"),
    [
        (average(0.9, OTHER, MOVED), average(0.99, OTHER, MOVED), ("average.rate", 0.9, 0.99)),
        (average(0.9, OTHER, MOVED), average(0.9, OTHER, OWN), ("average.order", NEW, OLD)),
        (average(0.9, OWN, MOVED), average(0.9, OWN, OWN), ("average.order", NEW, OLD)),  # it begins as a copy
        (average(0.9, OTHER, MOVED), average(0.9, OTHER, MOVED), (UNKNOWN, UNSET, UNSET)),
        (average(0.9, OTHER, MOVED), Recorded(OTHER, OTHER * 2), (UNKNOWN, UNSET, UNSET)),
        (Recorded(OTHER, OTHER * 2), average(0.9, OTHER, MOVED), (UNKNOWN, UNSET, UNSET)),
    ],
)
def test_averages(torch: Any, keras: Any, told: tuple[Any, ...]) -> None:
    result = CaseResult(case="pair/x", verdict="diverged", causes=[Cause(id=UNKNOWN, where="target")])
    name_averages(result, torch, keras)
    (cause,) = result.causes
    assert (cause.id, cause.torch, cause.keras) == told
