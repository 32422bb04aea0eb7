"""Trial passes for the survey: which masks would be drawn, which buffers change, and which weights are unused."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.pairs.causes.training import changing, counting
from parity.pairs.trials import Trials
from parity.runtime.survey import Rehearsal
from parity.trace.keys import numbered
from torch_impl.instruments import script_calls
from torch_impl.record import calls, tree
from torch_impl.record.masks import Masks
from torch_impl.record.pair import losses, values
from torch_impl.record.pair.build import Inputs, call
from torch_impl.record.pair.optimizers import leaves
from torch_impl.record.pair.outputs import describe_returned, flat, named
from torch_impl.record.weights import array, statistics


def rehearse(model: nn.Module, case: Case, inputs: Inputs) -> Rehearsal:
    """Return what training would draw and change; nothing for a model that cannot be trained: a run says why."""
    counted = _CountingMasks(case.seed)
    drawn: dict[str, int] = {}
    repeats: Counter[str] = Counter()

    def on_return(called: calls.Call, outputs: Any) -> None:
        path = called.path
        for _ in flat(outputs) if path else ():
            drawn[numbered(path, repeats[path])] = len(counted.sizes)
            repeats[path] += 1

    states = [_buffers(model)]
    try:
        with counted.drawn(model), calls.observed(tree.called(model), lambda _: None, on_return):
            outputs = call(script_calls.train(model), case.model, inputs)
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
    return _CountingMasks(case.seed).drawn(model, training)


class _CountingMasks(Masks):
    """Masks that drop nothing; `sizes` lists the number of elements of each mask."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 0, ordered=True)
        self.sizes: list[int] = []

    def dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        self.sizes.append(x.numel())
        return x


def _buffers(model: nn.Module) -> dict[str, np.ndarray]:
    """Return copies of the buffers that are no running statistics."""
    return {name: array(buffer).copy() for name, buffer in values.constants(model).items()}


def unused(model: nn.Module, case: Case, inputs: Inputs) -> list[str]:
    """Return the names of trained weights that no compared output depends on, and the statistics of their modules."""
    return _Trials(model, case, inputs).unused()


class _Trials(Trials):
    """Calls of a model without dropping."""

    def __init__(self, model: nn.Module, case: Case, inputs: Inputs) -> None:
        self.model, self.inputs = model, inputs
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        super().__init__(case, trained | statistics(model), trained, ".", array)

    def _outputs(self) -> list[torch.Tensor]:
        with without_dropping(self.model, self.case):
            returned = call(script_calls.train(self.model, self.training), self.case.model, self.inputs)
        return [output for _, output in named(self.case.model, returned)]

    def _without_gradient(self, names: Sequence[str]) -> tuple[list[str], list[torch.Tensor]]:
        outputs = self._outputs()
        if not all(output.is_floating_point() or output.is_complex() for output in outputs):
            return [], outputs
        reached = leaves(outputs)
        return [name for name in names if id(self.weights[name]) not in reached], outputs

    @contextmanager
    def _moved(self, noise: Mapping[str, np.ndarray]) -> Iterator[None]:
        own = {name: self.weights[name].detach().clone() for name in noise}
        for name, value in own.items():
            self.weights[name].data.add_(torch.from_numpy(noise[name]).to(value.device, value.dtype))
        yield
        for name, value in own.items():
            self.weights[name].data.copy_(value)
