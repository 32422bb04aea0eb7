"""Graphs that outlive their step: a loss that is summed up or kept together with its graph."""

import gc
import weakref
from typing import Any

import torch

from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Code, Place
from parity.doctor.evidence.training import Held
from parity.doctor.rewrite import Expression, Spot
from torch_impl.instruments import source

ADDS = frozenset(("add", "__add__", "__radd__", "__iadd__", "add_", "sum", "stack"))
MARK = "doctor graph"  # metadata key of an autograd node, whose value lives as long as the node


class _Alive:
    """A marker that lives as long as the autograd node that holds it."""


class Graphs:
    """Follows the losses of each step until the next step is over."""

    def __init__(self) -> None:
        self._roots: list[tuple[weakref.ref, weakref.ref, Place, Code | None]] = []  # of the previous step
        self._new: list[tuple[weakref.ref, weakref.ref, Place, Code | None]] = []
        self._sums: list[tuple[weakref.ref, Place, Spot | None]] = []  # what the program summed up, the latest last

    def note_sum(self, function: str, result: Any, place: Place) -> None:
        """Note a scalar that the program summed up of others, with a graph."""
        if function in ADDS and isinstance(result, torch.Tensor) and result.dim() == 0 and result.grad_fn is not None:
            place.source = source.line()
            self._sums.append((weakref.ref(result), place, source.spot()))

    def note_root(self, root: torch.Tensor, place: Place) -> None:
        """Note a tensor from which a backward pass begins."""
        if root.grad_fn is None:
            return
        alive = root.grad_fn.metadata.setdefault(MARK, _Alive())
        self._new.append((weakref.ref(alive), weakref.ref(root), place, _appended(root)))

    def finish(self, step: Step) -> None:
        """End the step: graphs of the previous step that are still alive are garbage, or held.

        If one remains after garbage collection, it is recorded as held.
        """
        if any(alive() for alive, *_ in self._roots):
            gc.collect()
        held = next((known for known in self._roots if known[0]()), None)
        if held:
            step.held = self._held(*held[1:])
        self._roots, self._new = self._new, []

    def _held(self, root: weakref.ref, place: Place, appended: Code | None) -> Held:
        """Return where the graph is held: in a sum of the program's, or in a list the loss is appended to."""
        for total, added, spot in reversed(self._sums):
            if total() is not None:
                return Held(place=added, mended=rewrite.code(spot, _detached))
        if root() is not None and appended:
            place.source = appended.source
        return Held(place=place, mended=appended)


def _detached(sum_: Expression) -> Code | None:
    """Return the line (total += loss, total + loss) with the added loss detached."""
    added = getattr(sum_.node, "value", getattr(sum_.node, "right", None))
    return sum_.with_text(added, f"{sum_.atom(added)}.detach()") if added is not None else None


def _appended(root: torch.Tensor) -> Code | None:
    """Return the line that appends the loss to a list, with the loss detached."""
    frame = source.frame()
    name = rewrite.name(frame, root)
    call = rewrite.call_with(frame, "append", name) if name else None
    return call.with_text(call.node.args[0], f"{name}.detach()") if call else None
