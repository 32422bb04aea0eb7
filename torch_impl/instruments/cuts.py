"""Gradient cuts: where a gradient's path ends in the program's own lines, and the line without the cut."""

import re
import weakref
from types import FrameType
from typing import Any

import torch

from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Code
from parity.doctor.evidence.training import Cut
from parity.doctor.rewrite import Expression
from torch_impl.instruments import source
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.origins import Origins, tensors

CUTS = ("detach", "detach_", "tensor")  # torch.tensor(x) copies only the numbers
READ = re.compile(r"(\.cpu\(\))?\.(numpy|tolist|item)\(")


class Cuts:
    """Records the cuts in the step."""

    def __init__(self, calls: Calls, origins: Origins):
        self.calls, self.origins = calls, origins
        # Scores of which integers were made, with the cut and the shape of the integers.
        self._whole: list[tuple[Cut, weakref.ref, torch.Size]] = []

    def begin(self, step: Step) -> None:
        """Attribute what follows to this step."""
        self.step = step
        self._whole.clear()

    def see(self, function: str, given: list[torch.Tensor], results: Any) -> None:
        """Note a function that the program called."""
        if not given or not given[0].requires_grad or not torch.is_grad_enabled():
            return
        if function in CUTS:
            self.note("detach", given[0])
        elif _are_whole(results) and (cut := self.note("integers", given[0])):
            self._whole.append((cut, weakref.ref(given[0]), tensors(results)[0].shape))

    def note(self, what: str, tensor: torch.Tensor) -> Cut | None:
        """Record a cut of a tensor that carries a gradient, if it is in the user's own line."""
        if not tensor.requires_grad or not torch.is_grad_enabled() or not (line := source.direct()):
            return None
        mended = rewrite.code(source.spot(), _uncut) if what != "integers" else None
        place = self.calls.place(line)
        self.step.cuts.append(Cut(what=what, tensor=self.origins.describe(tensor), place=place, mended=mended))
        return self.step.cuts[-1]

    def explain_whole(self, root: torch.Tensor) -> None:
        """Find a correction for losses that were made of integers (such as argmax).

        Called when a backward pass begins, because by then scores, labels and loss have names in the user's code.
        """
        frame = source.frame()
        for cut, scores, shape in self._whole:
            if scores() is not None and frame is not None:
                cut.mended = _of_scores(frame, root, rewrite.name(frame, scores()), shape)


def _uncut(cut: Expression) -> Code | None:
    """Return the line without the cut; None if NumPy follows, which takes no tensor with a graph."""
    return None if READ.match(cut.behind()) else cut.unwrapped()


def _are_whole(results: Any) -> bool:
    """Return whether a function made integers, as argmax does, and nothing else."""
    kinds = {tensor.dtype for tensor in tensors(results)}
    return bool(kinds) and not any(kind.is_floating_point or kind.is_complex or kind == torch.bool for kind in kinds)


def _of_scores(frame: FrameType, root: torch.Tensor, scores: str, shape: torch.Size) -> Code | None:
    """Return the line that made the loss, as a cross entropy of the scores."""
    expression = rewrite.assigned(frame, rewrite.name(frame, root))
    labels = [name for name, value in frame.f_locals.items() if _are_labels(value, shape)]
    if expression is None or not scores or not labels:
        return None
    home = next((name for name, value in expression.names.items() if value is torch), "torch")
    return expression.with_text(expression.node, f"{home}.nn.functional.cross_entropy({scores}, {labels[0]})")


def _are_labels(value: Any, shape: torch.Size) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.shape == shape
