"""Pretended GPUs: programs written for CUDA run unchanged on a machine without GPUs, on virtual devices.

Within `pretend(n)`, "cuda:i" is the virtual device lazy:i of instruments/virtual_devices.py, and the program only ever
sees cuda:i: in `tensor.device`, in messages and in text. The parts of PyTorch that are replaced for this are in the
modules here, each of which has a function `patches`; they are restored when the context ends.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest import mock

import torch

from parity.core.patches import applied
from parity.doctor.evidence import NotPretended
from torch_impl.instruments.pretended import devices, libraries, runtime, tensors
from torch_impl.instruments.virtual_devices import TYPE, Machine
from torch_impl.instruments.virtual_functions import virtual_devices

CPU = torch.device("cpu")


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
    for module in (devices, tensors, runtime, libraries):
        yield from module.patches(machine)
