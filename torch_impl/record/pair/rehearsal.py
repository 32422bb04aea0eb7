"""Trial passes for the survey: which masks would be drawn, which buffers change, and which weights are unused.

A weight is unused if no compared output can pass a gradient to it, and none changes in a single bit when the weight is
given other values, both in inference and in training. The first alone proves nothing: a detached weight has no gradient
and is used all the same. Nor does the second: a weight behind a ReLU that is closed for these inputs changes nothing
here, and yet it is used.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core import random
from parity.core.errors import BackendError, UsageError
from parity.pairs.causes.training import changing, counting
from parity.runtime.survey import Rehearsal
from torch_impl.record import calls, tree
from torch_impl.record.calls import Call
from torch_impl.record.masks import Masks
from torch_impl.record.pair import losses, values
from torch_impl.record.pair.build import Inputs, call
from torch_impl.record.pair.outputs import describe_returned, flat, named
from torch_impl.record.weights import array, statistics


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


MOST_ALONE = 16  # at most so many weights without a gradient are moved one by one


def unused(model: nn.Module, case: Case, inputs: Inputs) -> list[str]:
    """Return the names of trained weights that no compared output depends on, and the statistics of their modules.

    There are none for a model that cannot be called in both modes.
    """
    calls = _Calls(model, case, inputs)
    left = list(calls.weights)
    try:
        for training in (False, True):
            model.train(training)
            left = _unused(calls, left)
    except (UsageError, BackendError):
        return []
    return left


class _Calls:
    """Calls of a model without dropping; `trained` are the names of the weights that it trains, of all by name."""

    def __init__(self, model: nn.Module, case: Case, inputs: Inputs) -> None:
        self.model, self.case, self.inputs = model, case, inputs
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.weights, self.trained = {**trained, **statistics(model)}, set(trained)

    def outputs(self) -> list[torch.Tensor]:
        """Return the outputs that are compared."""
        with without_dropping(self.model, self.case):
            returned = call(self.model, self.case.model, self.inputs)
        return [output for _, output in named(self.case.model, returned)]

    def without_gradient(self, names: Iterable[str]) -> list[str]:
        """Return the weights to which no output can pass a gradient; none if some output is of whole numbers."""
        outputs = self.outputs()
        if not all(output.is_floating_point() or output.is_complex() for output in outputs):
            return []
        reached = _leaves(outputs)
        return [name for name in names if id(self.weights[name]) not in reached]

    def change_nothing(self, names: Sequence[str]) -> bool:
        """Return whether all outputs stay the same to the last bit when these weights are given other values.

        NaN is tried as well: it passes through what rounds.
        """
        before = [array(output).copy() for output in self.outputs()]
        for scale in (1.0, math.nan):
            with self._moved(names, scale):
                after = [array(output) for output in self.outputs()]
            if len(before) != len(after) or not all(map(np.array_equal, before, after)):
                return False
        return True

    @contextmanager
    def _moved(self, names: Iterable[str], scale: float) -> Iterator[None]:
        own = {name: self.weights[name].detach().clone() for name in names}
        for name, value in own.items():
            noise = scale * random.normal(self.case.seed, f"unused/{name}", tuple(value.shape))
            self.weights[name].data.add_(torch.from_numpy(noise).to(value.device, value.dtype))
        yield
        for name, value in own.items():
            self.weights[name].data.copy_(value)


def _unused(calls: _Calls, names: list[str]) -> list[str]:
    """Return those of these weights that are unused in one mode, statistics only of modules without a used weight."""
    alone = set(calls.without_gradient([name for name in names if name in calls.trained]))
    owners = {_module(name) for name in alone} - {_module(name) for name in calls.trained - alone}
    left = [name for name in names if name in alone or (name not in calls.trained and _module(name) in owners)]
    if not left or calls.change_nothing(left):
        return left
    return [name for name in left if calls.change_nothing([name])] if len(left) <= MOST_ALONE else []


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _leaves(outputs: Iterable[torch.Tensor]) -> set[int]:
    """Return the id() of every tensor that these were computed from and that takes a gradient."""
    found = {id(output) for output in outputs}
    nodes: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        found.add(id(getattr(node, "variable", None)))
        further = {other for other, _ in node.next_functions if other is not None} - seen
        seen |= further
        nodes.extend(further)
    return found
