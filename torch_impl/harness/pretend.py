"""A machine with GPUs that has none: programs written for CUDA run unchanged, on virtual devices.

Within `pretend(n)`, "cuda:i" is the virtual device lazy:i of virtual_devices.py, and the program sees nothing but
cuda:i: in `tensor.device`, in messages, in text. What is replaced to that end stands in pretended/, and is put back
when the context ends. AtenObserver that, in a TorchDispatchMode, tensors are VirtualTensors: `real` is what computes,
`name` what their device, or a message, says to the user.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torch_impl.harness.pretended import batch_norm, casts, devices, libraries, runtime, tensors
from torch_impl.harness.virtual_devices import TYPE, Machine, VirtualDevices, VirtualTensor, virtual_devices

CALLED = "cuda"
CPU = torch.device("cpu")
MISSING = object()


@contextmanager
def pretend(count: int, physical: torch.device = CPU) -> Iterator[None]:
    """Within it there are `count` devices "cuda:i". `physical`: what computes."""
    if physical.type == CALLED:
        torch.cuda.init()  # which the program then cannot do any more
    machine = Machine(physical, CALLED, count)
    with virtual_devices(machine):
        torch.zeros(())  # imports torch._dynamo, which must find PyTorch as it is
        with _patched(machine):
            yield


@contextmanager
def on_cpu(count: int) -> Iterator[None]:
    """The same names, and all of them are the CPU itself: a program runs as fast there as it can."""
    with _patched(OneMachine(CPU, CALLED, count)):
        yield


class OneMachine(Machine):
    """Its devices are one."""

    def place(self, device: torch.device) -> torch.device:
        """What computes, for each of them."""
        return self.physical if super().place(device).type == TYPE else device


@contextmanager
def _patched(machine: Machine) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in list(_patches(machine)):
            stack.callback(_put_back, owner, name, vars(owner).get(name, MISSING))
            setattr(owner, name, value)
        stack.callback(torch.set_default_device, None)
        yield


def name(device: Any) -> str:
    """The name of a device, or a text that names devices, as the user knows them: "cuda:1" for lazy:1."""
    if isinstance(device, torch.device) and device.index is None:
        device = VirtualDevices.machine.place(device)  # the current one
    text = re.sub(r"Lazy(\w+)Type\b", rf"torch.{CALLED}.\1Tensor", str(device))
    return re.sub(rf"\b{TYPE}\b", CALLED, text)


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that computes, which may share memory with others."""
    return tensor.inner if isinstance(tensor, VirtualTensor) else tensor


def _patches(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    yield from devices.patches(machine)
    yield from tensors.patches(machine)
    yield from runtime.patches(machine)
    yield from libraries.patches(machine)
    yield from casts.patches()
    yield from batch_norm.patches()


def _put_back(owner: Any, name: str, value: Any) -> None:
    """What stood there; what was inherited is inherited again."""
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
