"""Records what a user's model does, from outside: hooks on its modules while they are called, and on parameters."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from parity.core.names import INPUT, MODEL
from parity.runtime.drive import Run
from torch_impl.harness import kinds
from torch_impl.harness.pair import values
from torch_impl.harness.pair.outputs import Named, flat

OnTensors = Callable[[str, list[torch.Tensor]], None]


class _Stored(NamedTuple):
    """A tensor of this forward pass, the version that was recorded, and the key that it has got."""

    tensor: weakref.ref[torch.Tensor]
    version: int
    key: str


@contextmanager
def observed(model: nn.Module, on_call: OnTensors, on_return: OnTensors) -> Iterator[None]:
    """Within it every call of a module is told, with what goes into it (if no modules are within) and what comes out.

    An activation that is computed again in the backward pass comes after the block, and is not told.
    """
    removing = []
    for name, module in model.named_modules():
        removing.append(module.register_forward_pre_hook(_before(name, on_call), with_kwargs=True))
        removing.append(module.register_forward_hook(_behind(name, on_return)))
    try:
        yield
    finally:
        for handle in removing:
            handle.remove()


def _before(name: str, on_call: OnTensors) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        on_call(name, _given(module, args, kwargs))

    return hook


def _behind(name: str, on_return: OnTensors) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, outputs: Any) -> None:
        on_return(name, list(flat(outputs)))

    return hook


def _given(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call is given; of an attention query, key and value; of a module with modules none."""
    attention = kinds.kind(module) == "attention"
    if not attention and next(module.children(), None) is not None:
        return []
    return list(flat((*args, *kwargs.values())))[: 3 if attention else None]


def _slots(optimizer: Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """A parameter's, but for the step counter."""
    state = optimizer.state.get(parameter, {})
    return {slot: one for slot, one in state.items() if slot != "step" and isinstance(one, torch.Tensor)}


def _zeros(optimizer: Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a parameter that has never had a gradient would begin with, where others have slots of their own shape."""
    others = {
        slot for one in optimizer.state for slot, held in _slots(optimizer, one).items() if held.shape == one.shape
    }
    return {slot: torch.zeros_like(parameter) for slot in sorted(others)}


class Probe:
    """Records one run of a model. `modules`: the kinds of those that were called."""

    def __init__(self, run: Run, model: nn.Module) -> None:
        self.model, self.recorder = model, run.recorders[0]
        self.trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self.modules: dict[str, str] = {}
        self._kinds = {name: kinds.kind(module) for name, module in model.named_modules()}
        self._stored: dict[int, _Stored] = {}
        self._order: dict[str, None] = {}
        for name, parameter in self.trained.items():
            parameter.register_post_accumulate_grad_hook(self._on_gradient(name))

    @contextmanager
    def forward(self, inputs: list[torch.Tensor]) -> Iterator[None]:
        """What goes into the model, and within the block what modules are given and return."""
        self._stored.clear()
        for tensor in inputs:
            self._add("input", "input", tensor)
        with observed(self.model, self._on_call, self._on_return):
            yield

    def outputs(self, named: Named) -> None:
        """What the model has returned. The recorder numbers outputs without names by itself."""
        for name, tensor in named:
            self._add("activation", MODEL if name.startswith(f"{MODEL}#") else name, tensor)

    def loss(self, value: torch.Tensor, target: torch.Tensor | None) -> None:
        """What is differentiated."""
        if target is not None:
            self._add("input", "target", target)
        self._add("loss", "loss", value)

    def gradients(self, inputs: dict[str, torch.Tensor]) -> None:
        """Those of parameters in the order of the backward pass, and those of the inputs.

        None is zero: where nothing flows back, one framework has zeros and the other no gradient.
        """
        for name in (*self._order, *(name for name in self.trained if name not in self._order)):
            self._add_gradient(name, self.trained[name])
        for name, tensor in inputs.items():
            if tensor.requires_grad:
                self._add_gradient(f"{INPUT}.{name}", tensor)
        self._order.clear()

    def state(self, optimizer: Optimizer | None) -> None:
        """Parameters, buffers and the optimizer's state."""
        for name, parameter in self.model.named_parameters():
            self._add("parameter", name, parameter)
        for name, buffer in (values.statistics(self.model) | values.constants(self.model)).items():
            self._add("buffer", name, buffer)
        if optimizer is not None and self.recorder.wants("optimizer_state"):
            self._optimizer(optimizer)

    def _optimizer(self, optimizer: Optimizer) -> None:
        """The learning rate of the next step, and `parameter.slot` for every slot but the step counter."""
        if "lr" in optimizer.param_groups[0]:
            rate = np.asarray(float(optimizer.param_groups[0]["lr"]), np.float64)
            self.recorder.add("optimizer_state", "learning_rate", rate)
        for name, parameter in self.trained.items():
            for slot, tensor in (_slots(optimizer, parameter) or _zeros(optimizer, parameter)).items():
                self._add("optimizer_state", f"{name}.{slot}", tensor)

    def _add_gradient(self, name: str, tensor: torch.Tensor) -> None:
        if self.recorder.wants("gradient"):
            self._add("gradient", name, torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)

    def _on_call(self, name: str, found: list[torch.Tensor]) -> None:
        for tensor in found if name else []:
            self._add("input", name, tensor)

    def _on_return(self, name: str, found: list[torch.Tensor]) -> None:
        if name:
            self.modules[name] = self._kinds[name]
        for tensor in found if name else []:
            self._add("activation", name, tensor)

    def _on_gradient(self, name: str) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            self._order[name] = None

        return hook

    def _add(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor, or that it is what was recorded in this forward pass already."""
        if not self.recorder.wants(kind):
            return
        stored = self._stored.get(id(tensor))
        known = stored is not None and stored.tensor() is tensor and stored.version == tensor._version
        if known and kind == "input":
            self.recorder.alias(kind, name, stored.key)
            return
        key = self.recorder.add(kind, name, values.array(tensor))
        if key and kind in ("input", "activation") and not known:
            self._stored[id(tensor)] = _Stored(weakref.ref(tensor), tensor._version, key)
