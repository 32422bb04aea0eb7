"""Graphs that outlive their step: a loss that is added up or kept with all that made it."""

import gc
import weakref
from typing import Any

import torch

from parity.doctor import rewrite
from parity.doctor.evidence import Code, Held, Place, Step
from parity.doctor.rewrite import Expression, Spot
from torch_impl.harness.doctor import source

ADDS = frozenset(("add", "__add__", "__radd__", "__iadd__", "add_", "sum", "stack"))
MARK = "doctor graph"  # what a node of the graph has in its metadata, as long as the node lives


class _Alive:
    """Lives as long as the node of the graph that holds it."""


class Graphs:
    """Follows the losses of one step until the next is over."""

    def __init__(self) -> None:
        self._roots: list[tuple[weakref.ref, weakref.ref, Place, Code | None]] = []  # of the step before
        self._new: list[tuple[weakref.ref, weakref.ref, Place, Code | None]] = []
        self._sums: list[tuple[weakref.ref, Place, Spot | None]] = []  # what the program added up, the last one last

    def note_sum(self, function: str, result: Any, place: Place) -> None:
        """The program made a number of others, with a graph."""
        if function in ADDS and isinstance(result, torch.Tensor) and result.dim() == 0 and result.grad_fn is not None:
            place.source = source.line()
            self._sums.append((weakref.ref(result), place, source.spot()))

    def note_root(self, root: torch.Tensor, place: Place) -> None:
        """A backward pass begins at it."""
        if root.grad_fn is None:
            return
        alive = root.grad_fn.metadata.setdefault(MARK, _Alive())
        self._new.append((weakref.ref(alive), weakref.ref(root), place, _appended(root)))

    def finish(self, step: Step) -> None:
        """The step is over: what the one before left is garbage by now, or held on purpose or by mistake."""
        if any(alive() for alive, *_ in self._roots):
            gc.collect()
        held = next((known for known in self._roots if known[0]()), None)
        if held:
            step.held = self._held(*held[1:])
        self._roots, self._new = self._new, []

    def _held(self, root: weakref.ref, place: Place, appended: Code | None) -> Held:
        for total, added, spot in reversed(self._sums):
            if total() is not None:
                return Held(place=added, mended=rewrite.code(spot, _detached))
        if root() is not None and appended:
            place.source = appended.source
        return Held(place=place, mended=appended)


def _detached(sum_: Expression) -> Code | None:
    """total += loss, total + loss: what is added without its graph."""
    added = getattr(sum_.node, "value", getattr(sum_.node, "right", None))
    return sum_.with_text(added, f"{sum_.atom(added)}.detach()") if added is not None else None


def _appended(root: torch.Tensor) -> Code | None:
    """The line that puts the loss into a list, by the name that it has where the backward pass begins."""
    frame = source.frame()
    name = rewrite.name(frame, root)
    call = rewrite.call_with(frame, "append", name) if name else None
    return call.with_text(call.node.args[0], f"{name}.detach()") if call else None
