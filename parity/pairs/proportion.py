"""Gradients and updates behind an accepted difference: whether they are apart in proportion to it.

No formula computes them again. They are smooth functions of what went before them, so that a small difference there
makes a small one here, each relative to the largest value: in right ports with an accepted epsilon, bias or learning
rate at most 4 times as large a one was measured. What is further apart than FACTOR times may be a fault of the backward
pass or of the optimizer; so may anything in proportion to a large difference: beyond MOST nothing is told by that.
"""

from collections.abc import Iterable
from typing import Final

from parity.pairs.evidence import Evidence
from parity.trace import keys
from parity.verdict.traces import Unequal

FACTOR: Final = 16
MOST: Final = 1 / 8  # a gradient that is 1.15 times what it should be is further apart
FORWARD: Final = ("input", "activation")


class Proportion:
    """How far apart gradients and updates may be. `unequal`: all that is not a match."""

    def __init__(self, unequal: list[Unequal], evidence: Evidence) -> None:
        self._unequal, self._evidence = unequal, evidence
        self._gradients: dict[str, list[Unequal]] = {}
        for each in unequal:
            if each.kind == "gradient":
                self._gradients.setdefault(each.name, []).append(each)
        self._forward: dict[int, float] = {}

    def holds(self, each: Unequal) -> bool:
        """Whether a gradient, or what the optimizer makes of its parameter, is no further apart than it may be."""
        size = self._evidence.size(each)
        if size is None:
            return False
        most = FACTOR * self.before(each)
        return size.relative <= (most if self._evidence.moved_alike_before(each) else min(most, MOST))

    def before(self, each: Unequal) -> float:
        """The largest relative difference of what a tensor is made of."""
        step = _step(each)
        if each.kind == "gradient":
            if step not in self._forward:
                self._forward[step] = self._largest(self._in_forward(step)) or self._largest(self._losses(step))
            return self._forward[step]
        name = each.name.rpartition(".")[0] if each.kind == "optimizer_state" else each.name
        return self._largest(one for one in self._gradients.get(name, ()) if _step(one) <= step)

    def _in_forward(self, step: int) -> Iterable[Unequal]:
        """What is apart in the last step up to this one that recorded its forward pass, and the parameters before."""
        modules = [one for one in self._unequal if one.kind in FORWARD and one.name not in keys.MODEL_INPUTS]
        last = max((_step(one) for one in modules if _step(one) <= step), default=None)
        yield from (one for one in modules if _step(one) == last)
        yield from (one for one in self._unequal if one.kind == "parameter" and _step(one) < step)

    def _losses(self, step: int) -> Iterable[Unequal]:
        return (one for one in self._unequal if one.kind == "loss" and _step(one) == step)

    def _largest(self, found: Iterable[Unequal]) -> float:
        sizes = (self._evidence.size(one) for one in found)
        return max((size.relative for size in sizes if size is not None), default=0.0)


def _step(each: Unequal) -> int:
    return -1 if each.step is None else each.step
