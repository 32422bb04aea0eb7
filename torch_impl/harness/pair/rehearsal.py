"""Trial passes in training mode without dropping: which masks would be drawn, and which buffers change."""

from collections import Counter

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.pairs.moved import changing, counting
from parity.trace.survey import Rehearsal
from torch_impl.harness.masks import Masks
from torch_impl.harness.pair import values
from torch_impl.harness.pair.build import Inputs, call
from torch_impl.harness.pair.outputs import describe_returned
from torch_impl.harness.pair.probe import observed


def rehearse(model: nn.Module, case: Case, inputs: Inputs) -> Rehearsal:
    """Return what training would draw and change.

    The result is empty for a model that cannot run in training mode; a training run reports why.
    """
    counted = _CountingMasks(case.seed, 0, ordered=True)
    drawn: dict[str, int] = {}
    repeats: Counter[str] = Counter()

    def on_return(name: str, tensors: list[torch.Tensor]) -> None:
        for _ in tensors if name else []:
            drawn[f"{name}#{repeats[name]}" if repeats[name] else name] = len(counted.sizes)
            repeats[name] += 1

    states = [_buffers(model)]
    try:
        with torch.no_grad():
            with counted.drawn(model), observed(model, lambda *_: None, on_return):
                outputs = call(model.train(), case.model, inputs)
            states.append(_buffers(model))
            with _CountingMasks(case.seed, 0, ordered=True).drawn(model):
                call(model, case.model, inputs)
            states.append(_buffers(model))
    except (UsageError, BackendError):
        return Rehearsal()
    return Rehearsal(
        drawn=drawn,
        masks=counted.sizes,
        changing=changing(states),
        counting=counting(states),
        returned=describe_returned(case.model, outputs),
    )


class _CountingMasks(Masks):
    """Masks that drop nothing; `sizes` lists the number of elements of each mask."""

    def __init__(self, seed: int, replica: int | None, ordered: bool = False):
        super().__init__(seed, replica, ordered)
        self.sizes: list[int] = []

    def dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        self.sizes.append(x.numel())
        return x


def _buffers(model: nn.Module) -> dict[str, np.ndarray]:
    """Return copies of the buffers that are no running statistics."""
    return {name: values.array(buffer).copy() for name, buffer in values.constants(model).items()}
