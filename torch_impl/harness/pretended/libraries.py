"""torch.distributed, torch.load, torch.compile and torch.jit.script on virtual devices.

NCCL becomes gloo, which sees the tensors that compute. What a compiler would make of a
function saw nothing of virtual devices: the function is run as it is.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import distributed
from torch.nn import functional

from torch_impl.harness.pretended.devices import located
from torch_impl.harness.virtual_devices import TYPE, Machine


def patches(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """What is replaced: owner, name, value."""
    yield torch, "compile", _compile
    yield torch.nn.Module, "compile", lambda self, *args, **kwargs: None
    yield torch.jit, "script", lambda function, *args, **kwargs: function
    yield functional, "ctc_loss", _ctc_loss(functional.ctc_loss)
    yield torch, "load", _load(torch.load, machine)
    # torch.nn.parallel's attribute of this name is a function.
    yield sys.modules["torch.nn.parallel.data_parallel"], "_get_available_device_type", lambda: machine.called
    yield torch.nn.parallel._functions, "_streams", None  # which nn.DataParallel keeps
    if distributed.is_available():
        for module in (distributed, distributed.distributed_c10d):
            yield module, "init_process_group", _init(distributed.init_process_group)
            yield module, "is_nccl_available", lambda: True


def _compile(model: Any = None, **kwargs: Any) -> Any:
    """torch.compile, as a function or as a decorator with settings."""
    return (lambda function: function) if model is None else model


def _ctc_loss(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The loss, whose lengths may be anywhere: it needs them as numbers."""

    @functools.wraps(plain)
    def ctc_loss(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *rest: Any, **named: Any
    ) -> Any:
        lengths = (
            each.tolist() if isinstance(each, torch.Tensor) else each for each in (input_lengths, target_lengths)
        )
        return plain(log_probs, targets, *lengths, *rest, **named)

    return ctc_loss


def _load(plain: Callable[..., Any], machine: Machine) -> Callable[..., Any]:
    """torch.load, whose storages cannot be virtual: what was loaded is moved."""

    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        place = located(machine, map_location)
        if not isinstance(place, torch.device) or place.type != TYPE:
            return plain(file, map_location, *args, **kwargs)
        return _moved(plain(file, "cpu", *args, **kwargs), place)

    return load


def _moved(value: Any, place: torch.device) -> Any:
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return value.to(place)
    if isinstance(value, dict):
        for name, each in value.items():
            value[name] = _moved(each, place)
    elif type(value) in (list, tuple):
        return type(value)(_moved(each, place) for each in value)
    return value


def _init(plain: Callable[..., None]) -> Callable[..., None]:
    """init_process_group over gloo, unless there is a group."""

    def init(backend: str | None = None, *args: Any, device_id: Any = None, **kwargs: Any) -> None:
        if not distributed.is_initialized():
            plain("gloo", *args, **kwargs)

    return init
