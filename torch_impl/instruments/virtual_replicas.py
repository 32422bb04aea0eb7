"""Virtual devices for a block of code, in which nn.DataParallel and torch.autocast work on them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import Module

from torch_impl.instruments import casts
from torch_impl.instruments.virtual_devices import TYPE, Machine, VirtualDevices, set_data


@contextmanager
def virtual_devices(physical: torch.device | Machine) -> Iterator[None]:
    """Provide virtual devices `lazy:i`, as many as are used, within the block; nn.DataParallel runs on them.

    nn.DataParallel itself is unchanged. Replaced are the CUDA parts that it uses: the type of available devices, the
    copying functions in C++ (which a CPU build lacks), and the threads that give each replica a stream of its own.
    torch.autocast ignores virtual tensors, so casts.py makes its casts: those of the device that computes, or those of
    the GPU that it is called.
    """
    machine = physical if isinstance(physical, Machine) else Machine(physical)
    module = sys.modules["torch.nn.parallel.data_parallel"]  # torch.nn.parallel's attribute is a function
    patches = [
        mock.patch.object(torch.Tensor, "data", property(torch._C.TensorBase.data.__get__, set_data)),
        mock.patch.object(module, "_get_available_device_type", lambda: TYPE),
        mock.patch.object(module, "parallel_apply", _one_after_the_other),
        mock.patch.object(torch.cuda.nccl, "is_available", lambda tensors: False),
        mock.patch.object(torch._C, "_scatter", _scatter, create=True),
        mock.patch.object(torch._C, "_gather", _gather, create=True),
        mock.patch.object(torch._C, "_broadcast_coalesced", _broadcast, create=True),
    ]
    kind = machine.physical.type if machine.called == TYPE else machine.called
    patches += [mock.patch.object(*patch) for patch in casts.patches(kind)]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.enter_context(VirtualDevices(machine))
        yield


def _at(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device(TYPE, index)


def _scatter(
    tensor: torch.Tensor, devices: list[int], sizes: list[int] | None, dim: int, streams: Any
) -> list[torch.Tensor]:
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(sizes, dim)
    return [part.to(_at(device)) for part, device in zip(parts, devices, strict=False)]


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int) -> torch.Tensor:
    return torch.cat([tensor.to(_at(destination)) for tensor in tensors], dim)


def _broadcast(tensors: Sequence[torch.Tensor], devices: list[int], buffer_size: int) -> list[list[torch.Tensor]]:
    return [[tensor.detach().to(_at(device)) for tensor in tensors] for device in devices]


def _one_after_the_other(
    modules: Sequence[Module], inputs: Sequence[tuple], kwargs: Sequence[dict], devices: Sequence[int]
) -> list[Any]:
    return [module(*args, **named) for module, args, named in zip(modules, inputs, kwargs, strict=True)]
