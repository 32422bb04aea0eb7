"""Trial passes in training mode without dropping: which masks would be drawn, and which buffers change."""

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.pairs.causes.training import changing, counting
from parity.trace.survey import Rehearsal
from torch_impl.record import calls, tree
from torch_impl.record.calls import Call
from torch_impl.record.masks import Masks
from torch_impl.record.pair import losses, values
from torch_impl.record.pair.build import Inputs, call
from torch_impl.record.pair.outputs import describe_returned, flat
from torch_impl.record.weights import array


def rehearse(model: nn.Module, case: Case, inputs: Inputs) -> Rehearsal:
    """Return what training would draw and change.

    The result is empty for a model that cannot run in training mode; a training run reports why.
    """
    counted = _CountingMasks(case.seed, 0, ordered=True)
    drawn: dict[str, int] = {}
    repeats: Counter[str] = Counter()

    def on_return(called: Call, outputs: Any) -> None:
        path = called.path
        for _ in flat(outputs) if path else ():
            drawn[f"{path}#{repeats[path]}" if repeats[path] else path] = len(counted.sizes)
            repeats[path] += 1

    states = [_buffers(model)]
    try:
        with counted.drawn(model), calls.observed(tree.called(model), lambda _: None, on_return):
            outputs = call(model.train(), case.model, inputs)
        states.append(_buffers(model))
        with without_dropping(model, case):
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
        trained=losses.trained(case.model, outputs),
    )


def without_dropping(model: nn.Module, case: Case, training: bool = True) -> AbstractContextManager[None]:
    """Return a context in which the model's dropouts drop nothing."""
    return _CountingMasks(case.seed, 0, ordered=True).drawn(model, training)


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
    return {name: array(buffer).copy() for name, buffer in values.constants(model).items()}
