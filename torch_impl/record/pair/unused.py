"""Find the weights that take part in nothing that is compared: a head of another task, a table that no call reads.

A weight is unused if no compared output can pass a gradient to it, and none changes in a single bit when the weight is
given other values, both in inference and in training. The first alone proves nothing: a detached weight has no gradient
and is used all the same. Nor does the second: a weight behind a ReLU that is closed for these inputs changes nothing
here, and yet it is used.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core import random
from parity.core.errors import BackendError, UsageError
from torch_impl.record.pair.build import Inputs, call
from torch_impl.record.pair.outputs import named
from torch_impl.record.pair.rehearsal import without_dropping
from torch_impl.record.weights import array, statistics

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
