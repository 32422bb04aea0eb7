"""Pretended GPUs: programs written for CUDA run unchanged on a machine without GPUs, on virtual devices.

Within `pretend(n)`, "cuda:i" is the virtual device lazy:i of instruments/virtual_devices.py, and the program only ever
sees cuda:i: in `tensor.device`, in messages and in text. The parts of PyTorch that are replaced for this are in the
modules here, each of which has a function `patches`; they are restored when the context ends.

This file itself replaces torch.distributed, torch.load, torch.compile, torch.jit.script and nn.SyncBatchNorm. NCCL
becomes gloo, which gets the tensors that compute. Compiled code would bypass virtual devices, so functions are run
uncompiled. The functions behind nn.SyncBatchNorm, which PyTorch has for CUDA only, are written in ops of all devices.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from torch import distributed
from torch.nn import functional

from parity.core.patches import Original, applied, calling, wrapping
from parity.doctor.evidence import NotPretended
from torch_impl.instruments.pretended import devices, runtime, tensors
from torch_impl.instruments.pretended.devices import located
from torch_impl.instruments.virtual_devices import TYPE, Machine
from torch_impl.instruments.virtual_functions import virtual_devices

CPU = torch.device("cpu")
Tensor = torch.Tensor


@contextmanager
def pretend(count: int) -> Iterator[list[NotPretended]]:
    """Provide `count` devices "cuda:i" within the block, and a list of the program's calls that are not imitated."""
    machine = Machine(CPU, devices.CALLED, count)
    with virtual_devices(machine):
        torch.zeros(())  # this imports torch._dynamo, which must see PyTorch before it is patched
        with _patched(machine):
            yield machine.not_pretended


def on_cpu(count: int) -> AbstractContextManager[None]:
    """Return a context with devices "cuda:i" that are all the CPU itself, so that a program runs at full speed."""
    return _patched(_OneMachine(CPU, devices.CALLED, count))


class _OneMachine(Machine):
    """A machine whose devices, of any number, are all one and the same."""

    def place(self, device: torch.device) -> torch.device:
        """Return the physical device for every virtual one; any other device unchanged."""
        return self.physical if device.type in (self.called, TYPE) else device


@contextmanager
def _patched(machine: Machine) -> Iterator[None]:
    with applied([mock.patch.object(*patch, create=True) for patch in _patches(machine)]):
        try:
            yield
        finally:
            with suppress(AttributeError):  # torch 2.9 raises it if None has been set before
                if torch.get_default_device() != CPU:
                    torch.set_default_device(None)  # the program has chosen another device


def _patches(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced: owner, name, value."""
    for module in (devices, tensors, runtime):
        yield from module.patches(machine)
    yield torch, "compile", _compile
    yield torch.nn.Module, "compile", lambda self, *args, **kwargs: None
    yield torch.jit, "script", lambda function, *args, **kwargs: function
    yield functional, "ctc_loss", wrapping(_ctc_loss, functional.ctc_loss)
    yield torch, "load", calling(_load, torch.load, machine)
    # Looked up in sys.modules, because torch.nn.parallel's attribute of this name is a function.
    yield sys.modules["torch.nn.parallel.data_parallel"], "_get_available_device_type", lambda: machine.called
    yield torch.nn.parallel._functions, "_streams", None  # nn.DataParallel caches its streams here
    if distributed.is_available():
        for module in (distributed, distributed.distributed_c10d):
            yield module, "init_process_group", calling(_init, distributed.init_process_group)
            yield module, "is_nccl_available", lambda: True
    yield torch, "batch_norm_stats", _stats
    yield torch, "batch_norm_gather_stats_with_counts", _gathered
    yield torch, "batch_norm_elemt", _normalized
    yield torch, "batch_norm_backward_reduce", _reduced
    yield torch, "batch_norm_backward_elemt", _gradient


def _compile(model: Any = None, **kwargs: Any) -> Any:
    """Return the model or function unchanged; used as a function, or as a decorator with settings."""
    return (lambda function: function) if model is None else model


def _ctc_loss(plain: Original, *args: Any, **kwargs: Any) -> Any:
    """Call the loss with lengths on any device as numbers, which it needs on the host."""
    given = inspect.signature(plain).bind(*args, **kwargs).arguments
    for name in ("input_lengths", "target_lengths"):
        given[name] = given[name].tolist() if isinstance(given[name], torch.Tensor) else given[name]
    return plain(**given)


def _load(plain: Original, machine: Machine, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Do what torch.load does: storages cannot be virtual, so load to the CPU and move the result."""
    device = located(machine, map_location)
    if not isinstance(device, torch.device) or device.type != TYPE:
        return plain(f, map_location, *args, **kwargs)
    return _moved(plain(f, "cpu", *args, **kwargs), device)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return value.to(device)
    if isinstance(value, dict):
        for name, member in value.items():
            value[name] = _moved(member, device)
    elif type(value) in (list, tuple):
        return type(value)(_moved(member, device) for member in value)
    return value


def _init(plain: Original, backend: str | None = None, *args: Any, device_id: Any = None, **kwargs: Any) -> None:
    """Do what init_process_group does, by gloo, and nothing if there is a group already."""
    if not distributed.is_initialized():
        plain("gloo", *args, **kwargs)


# nn.SyncBatchNorm.


def _stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x.float(), _axes(x), correction=0)
    return mean, (variance + eps).rsqrt()


def _gathered(
    x: Tensor, means: Tensor, inverses: Tensor, running_mean: Tensor, running_var: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / standard deviation over all ranks, and update the running statistics."""
    momentum, eps, counts = rest
    share = (counts / counts.sum())[:, None]
    mean = (means * share).sum(0)
    variance = ((inverses**-2 - eps + (means - mean) ** 2) * share).sum(0)
    if running_mean is not None:
        total = counts.sum()
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def _normalized(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor, eps: float) -> Tensor:
    y = (x - _wide(mean, x)) * _wide(inverse, x)
    return (y if weight is None else y * _wide(weight, x) + _wide(bias, x)).to(x.dtype)


def _reduced(
    grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, *needed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sums by channel: of the gradient, of it times x - mean, and the gradients of weight and bias."""
    by_bias = grad.float().sum(_axes(x))
    by_scale = (grad * (x - _wide(mean, x))).float().sum(_axes(x))
    return by_bias, by_scale, by_scale * inverse, by_bias


def _gradient(grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor | None, *sums: Tensor) -> Tensor:
    by_bias, by_scale, counts = sums  # over all ranks
    total = counts.sum()
    scale = inverse if weight is None else inverse * weight
    variance_term = (x - _wide(mean, x)) * _wide(inverse**2 * by_scale / total, x)
    return ((grad - _wide(by_bias / total, x) - variance_term) * _wide(scale, x)).to(x.dtype)


def _axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _wide(values: Tensor, x: Tensor) -> Tensor:
    """Reshape one value per channel so that it broadcasts with x."""
    return values.view(1, -1, *[1] * (x.dim() - 2))
