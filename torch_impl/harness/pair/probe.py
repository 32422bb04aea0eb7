"""The probe of a user's model: records it from outside, by hooks on its modules and parameters."""

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
    """A tensor recorded in this forward pass, its version counter at that time, and the key of the record."""

    tensor: weakref.ref[torch.Tensor]
    version: int
    key: str


@contextmanager
def observed(model: nn.Module, on_call: OnTensors, on_return: OnTensors) -> Iterator[None]:
    """Report every call of a module within the block.

    `on_call` gets the module's name and the tensors that go in (none for a module with submodules), `on_return` its
    name and the tensors that come out. Activations that a checkpoint recomputes in the backward pass are not reported,
    because that comes after the block.
    """
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(_before(name, on_call), with_kwargs=True))
        handles.append(module.register_forward_hook(_behind(name, on_return)))
    try:
        yield
    finally:
        for handle in handles:
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
    """Return the tensors that a call is given.

    For attention: query, key and value. For any other module with submodules: none.
    """
    is_attention = kinds.kind(module) == "attention"
    if not is_attention and next(module.children(), None) is not None:
        return []
    return list(flat((*args, *kwargs.values())))[: 3 if is_attention else None]


def _slots(optimizer: Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the optimizer's slots of a parameter, without the step counter."""
    state = optimizer.state.get(parameter, {})
    return {slot: tensor for slot, tensor in state.items() if slot != "step" and isinstance(tensor, torch.Tensor)}


def _zeros(optimizer: Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the slots of a parameter that has never had a gradient, as zeros.

    It gets those slots in which the other parameters have tensors of their own shape.
    """
    slots = {
        slot
        for candidate in optimizer.state
        for slot, tensor in _slots(optimizer, candidate).items()
        if tensor.shape == candidate.shape
    }
    return {slot: torch.zeros_like(parameter) for slot in sorted(slots)}


class Probe:
    """Records one run of a model; `modules` holds the kinds of the modules that were called."""

    def __init__(self, run: Run, model: nn.Module) -> None:
        self.model, self.recorder = model, run.recorders[0]
        self.trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.modules: dict[str, str] = {}
        self._kinds = {name: kinds.kind(module) for name, module in model.named_modules()}
        self._stored: dict[int, _Stored] = {}
        self._order: dict[str, None] = {}
        for name, parameter in self.trained.items():
            parameter.register_post_accumulate_grad_hook(self._on_gradient(name))

    @contextmanager
    def forward(self, inputs: list[torch.Tensor]) -> Iterator[None]:
        """Record the model's inputs and, within the block, what its modules are given and return."""
        self._stored.clear()
        for tensor in inputs:
            self._add("input", "input", tensor)
        with observed(self.model, self._on_call, self._on_return):
            yield

    def outputs(self, named: Named) -> None:
        """Record what the model returned; the recorder numbers outputs without names."""
        for name, tensor in named:
            self._add("activation", MODEL if name.startswith(f"{MODEL}#") else name, tensor)

    def loss(self, value: torch.Tensor, target: torch.Tensor | None) -> None:
        """Record the scalar that is differentiated, and the target."""
        if target is not None:
            self._add("input", "target", target)
        self._add("loss", "loss", value)

    def gradients(self, inputs: dict[str, torch.Tensor]) -> None:
        """Record the gradients of the parameters, in the order of the backward pass, and of the inputs.

        A missing gradient is recorded as zeros: where nothing flows back, one framework returns zeros and the other
        None.
        """
        for name in (*self._order, *(name for name in self.trained if name not in self._order)):
            self._add_gradient(name, self.trained[name])
        for name, tensor in inputs.items():
            if tensor.requires_grad:
                self._add_gradient(f"{INPUT}.{name}", tensor)
        self._order.clear()

    def state(self, optimizer: Optimizer | None) -> None:
        """Record parameters, buffers and the optimizer's state."""
        for name, parameter in self.model.named_parameters():
            self._add("parameter", name, parameter)
        for name, buffer in (values.statistics(self.model) | values.constants(self.model)).items():
            self._add("buffer", name, buffer)
        if optimizer is not None and self.recorder.wants("optimizer_state"):
            self._optimizer(optimizer)

    def _optimizer(self, optimizer: Optimizer) -> None:
        """Record the learning rate of the next step, and every slot but the step counter as `parameter.slot`."""
        if "lr" in optimizer.param_groups[0]:
            rate = np.asarray(float(optimizer.param_groups[0]["lr"]), np.float64)
            self.recorder.add("optimizer_state", "learning_rate", rate)
        for name, parameter in self.trained.items():
            for slot, tensor in (_slots(optimizer, parameter) or _zeros(optimizer, parameter)).items():
                self._add("optimizer_state", f"{name}.{slot}", tensor)

    def _add_gradient(self, name: str, tensor: torch.Tensor) -> None:
        if self.recorder.wants("gradient"):
            self._add("gradient", name, torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)

    def _on_call(self, name: str, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors if name else []:
            self._add("input", name, tensor)

    def _on_return(self, name: str, tensors: list[torch.Tensor]) -> None:
        if name:
            self.modules[name] = self._kinds[name]
        for tensor in tensors if name else []:
            self._add("activation", name, tensor)

    def _on_gradient(self, name: str) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            self._order[name] = None

        return hook

    def _add(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor; an input that was recorded in this forward pass already becomes an alias of that record."""
        if not self.recorder.wants(kind):
            return
        stored = self._stored.get(id(tensor))
        is_known = stored is not None and stored.tensor() is tensor and stored.version == tensor._version
        if is_known and kind == "input":
            self.recorder.alias(kind, name, stored.key)
            return
        key = self.recorder.add(kind, name, values.array(tensor))
        if key and kind in ("input", "activation") and not is_known:
            self._stored[id(tensor)] = _Stored(weakref.ref(tensor), tensor._version, key)
