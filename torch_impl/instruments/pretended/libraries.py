"""Replaces torch.distributed, torch.load, torch.compile and torch.jit.script on virtual devices.

NCCL becomes gloo, which gets the tensors that compute. Compiled code would bypass virtual devices, so functions are run
uncompiled.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import distributed
from torch.nn import functional

from torch_impl.instruments.pretended.devices import located
from torch_impl.instruments.virtual_devices import TYPE, Machine


def patches(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced: owner, name, value."""
    yield torch, "compile", _compile
    yield torch.nn.Module, "compile", lambda self, *args, **kwargs: None
    yield torch.jit, "script", lambda function, *args, **kwargs: function
    yield functional, "ctc_loss", _ctc_loss(functional.ctc_loss)
    yield torch, "load", _load(torch.load, machine)
    # Looked up in sys.modules, because torch.nn.parallel's attribute of this name is a function.
    yield sys.modules["torch.nn.parallel.data_parallel"], "_get_available_device_type", lambda: machine.called
    yield torch.nn.parallel._functions, "_streams", None  # nn.DataParallel caches its streams here
    if distributed.is_available():
        for module in (distributed, distributed.distributed_c10d):
            yield module, "init_process_group", _init(distributed.init_process_group)
            yield module, "is_nccl_available", lambda: True


def _compile(model: Any = None, **kwargs: Any) -> Any:
    """Return the model or function unchanged; used as a function, or as a decorator with settings."""
    return (lambda function: function) if model is None else model


def _ctc_loss(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the loss so that lengths on any device are passed as numbers, which it needs on the host."""

    @functools.wraps(plain)
    def ctc_loss(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *rest: Any, **named: Any
    ) -> Any:
        lengths = (
            length.tolist() if isinstance(length, torch.Tensor) else length
            for length in (input_lengths, target_lengths)
        )
        return plain(log_probs, targets, *lengths, *rest, **named)

    return ctc_loss


def _load(plain: Callable[..., Any], machine: Machine) -> Callable[..., Any]:
    """Wrap torch.load: storages cannot be virtual, so load to the CPU and move the result."""

    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        device = located(machine, map_location)
        if not isinstance(device, torch.device) or device.type != TYPE:
            return plain(file, map_location, *args, **kwargs)
        return _moved(plain(file, "cpu", *args, **kwargs), device)

    return load


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return value.to(device)
    if isinstance(value, dict):
        for name, member in value.items():
            value[name] = _moved(member, device)
    elif type(value) in (list, tuple):
        return type(value)(_moved(member, device) for member in value)
    return value


def _init(plain: Callable[..., None]) -> Callable[..., None]:
    """Wrap init_process_group so that it uses gloo, and does nothing if there is a group already."""

    def init(backend: str | None = None, *args: Any, device_id: Any = None, **kwargs: Any) -> None:
        if not distributed.is_initialized():
            plain("gloo", *args, **kwargs)

    return init
