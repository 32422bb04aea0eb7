"""Records what a training loop does, from outside: hooks on modules and optimizer, a wrapped loss."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from parity.trace.recorder import Recorder
from torch_impl.harness import weights

OUTPUT = "(model)"  # the name of the whole model's result; no attribute can have it


class Probe:
    """Attached to a model and its optimizer for the rest of their lives.

    `accumulate`: the number of backward passes of a step; the gradients are those after the last.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, recorder: Recorder, accumulate: int):
        self.model, self.optimizer, self.recorder = model, optimizer, recorder
        self.accumulate = accumulate
        self._backwards: Counter[str] = Counter()
        model.register_forward_pre_hook(lambda _, inputs: self._tensors("input", "input", inputs))
        for name, module in model.named_modules():
            module.register_forward_hook(self._on_forward(name or OUTPUT))
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(self._on_gradient(name))

    def watch(self, loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """The loss, its values recorded."""

        def watched(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            value = loss(outputs, target)
            self._tensors("input", "target", target)
            self._tensors("loss", "loss", value)
            return value

        return watched

    def on_step(self) -> None:
        """After an update (and once before the first): the state of model and optimizer."""
        kinds = {
            "parameter": weights.parameters(self.model),
            "buffer": weights.buffers(self.model),
            "optimizer_state": weights.optimizer_state(self.model, self.optimizer),
        }
        for kind, named in kinds.items():
            if self.recorder.wants(kind):
                for name, array in named:
                    self.recorder.add(kind, name, array)
        self.recorder.next_step()

    def _on_forward(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, outputs: Any) -> None:
            self._tensors("activation", name, outputs)

        return hook

    def _on_gradient(self, name: str) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            self._backwards[name] += 1
            if self._backwards[name] % self.accumulate == 0:
                self._tensors("gradient", name, parameter.grad)

        return hook

    def _tensors(self, kind: str, name: str, value: Any) -> None:
        """Every tensor in a nest of tuples, lists and dicts."""
        for tensor in pytree.tree_leaves(value):
            if isinstance(tensor, torch.Tensor):
                self.recorder.add(kind, name, weights.to_numpy(tensor))
