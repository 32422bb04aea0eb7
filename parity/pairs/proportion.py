"""Judge what no formula recomputes behind an accepted difference by whether it is apart in proportion to it.

Most gradients and updates are such tensors. They are smooth functions of what went before them, so that a small
difference there makes a small one here, each taken relative to the largest value of its tensor. In right ports with an
accepted epsilon, bias or learning rate it was measured to grow at most 4 times. A tensor that is more than FACTOR times
as far apart may show a fault of the backward pass or of the optimizer. Behind a large difference anything is in
proportion, so that beyond MOST this comparison tells nothing. What functions make between two modules in the forward
pass is judged in this way only where float32 cannot see the difference.
"""

from collections.abc import Iterable
from typing import Final

from parity.pairs.evidence import Evidence
from parity.trace import keys
from parity.verdict.rule import SUBPRECISION
from parity.verdict.traces import Unequal

FACTOR: Final = 16
MOST: Final = 1 / 8  # refuses, for one, a gradient that is 1.15 times what it should be
FORWARD: Final = ("input", "activation")


class Proportion:
    """How far apart gradients and updates may be; `unequal` are all tensors that are not a match."""

    def __init__(self, unequal: list[Unequal], evidence: Evidence) -> None:
        self._unequal, self._evidence = unequal, evidence
        self._gradients: dict[str, list[Unequal]] = {}
        for tensor in unequal:
            if tensor.kind == "gradient":
                self._gradients.setdefault(tensor.name, []).append(tensor)
        self._forward: dict[int, float] = {}

    def holds(self, tensor: Unequal) -> bool:
        """Return whether a gradient, or what the optimizer makes of it, is no further apart than it may be."""
        size = self._evidence.size(tensor)
        if size is None:
            return False
        limit = FACTOR * self.before(tensor)
        return size.relative <= (limit if self._evidence.moved_alike_before(tensor) else min(limit, MOST))

    def holds_forward(self, tensor: Unequal) -> bool:
        """Return whether a tensor of the forward pass is no further apart than it may be, and than float32 can see.

        It may also have been so in an earlier step of the training, since it is computed in the same way in each.
        """
        same = [other for other in self._unequal if other._replace(step=tensor.step) == tensor]
        return any(self._is_slight(other) for other in same if _step(other) <= _step(tensor))

    def _is_slight(self, tensor: Unequal) -> bool:
        earlier = self._unequal[: self._unequal.index(tensor)]
        before = self._largest(
            other
            for other in earlier
            if (other.kind in FORWARD and other.step == tensor.step) or other.kind == "parameter"
        )
        size = self._evidence.size(tensor)
        return size is not None and size.relative <= min(SUBPRECISION, FACTOR * before)

    def before(self, tensor: Unequal) -> float:
        """Return the largest relative difference among the tensors that a tensor is computed from."""
        step = _step(tensor)
        if tensor.kind == "gradient":
            if step not in self._forward:
                self._forward[step] = self._largest(self._in_forward(step)) or self._largest(self._losses(step))
            return self._forward[step]
        name = tensor.name.rpartition(".")[0] if tensor.kind == "optimizer_state" else tensor.name
        return self._largest(gradient for gradient in self._gradients.get(name, ()) if _step(gradient) <= step)

    def _in_forward(self, step: int) -> Iterable[Unequal]:
        """Yield what differs in the forward pass before a gradient, and the parameters that differed before the step.

        The forward pass is that of the last step up to this one that recorded it.
        """
        modules = [
            tensor for tensor in self._unequal if tensor.kind in FORWARD and tensor.name not in keys.MODEL_INPUTS
        ]
        last = max((_step(tensor) for tensor in modules if _step(tensor) <= step), default=None)
        yield from (tensor for tensor in modules if _step(tensor) == last)
        yield from (tensor for tensor in self._unequal if tensor.kind == "parameter" and _step(tensor) < step)

    def _losses(self, step: int) -> Iterable[Unequal]:
        return (tensor for tensor in self._unequal if tensor.kind == "loss" and _step(tensor) == step)

    def _largest(self, tensors: Iterable[Unequal]) -> float:
        sizes = (self._evidence.size(tensor) for tensor in tensors)
        return max((size.relative for size in sizes if size is not None), default=0.0)


def _step(tensor: Unequal) -> int:
    return -1 if tensor.step is None else tensor.step
