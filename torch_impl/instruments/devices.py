"""The devices of a case on this machine, and the process group of its ranks."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.distributed as dist

from parity.config import devices, schema
from parity.core.errors import UsageError
from parity.runtime.drive import Rank
from torch_impl.instruments.virtual_devices import TYPE
from torch_impl.instruments.virtual_functions import virtual_devices

DEFAULT = "cpu:2"  # if PARITY_DEVICES is not set


class Machine(NamedTuple):
    """The logical devices of a case, a description of each, and the device that computes for them if they are virtual.

    `rank` is this process's own logical device, if each process has one; else None.
    """

    logical: list[torch.device]
    names: list[str]
    physical: torch.device | None
    rank: int | None

    def index(self, tensor: torch.Tensor) -> int | None:
        """Return the logical device of a tensor, or None for a tensor on the host of other devices."""
        if self.rank is not None:
            return self.rank
        if tensor.device.type != self.logical[0].type:
            return None
        return tensor.device.index or 0

    def available(self) -> AbstractContextManager[None]:
        """Join the process group where the case needs it, and return a context in which there are its devices."""
        if self.rank is not None:
            join(self.logical[self.rank])
        return nullcontext() if self.physical is None else virtual_devices(self.physical)


def rank() -> Rank:
    """Return this process's rank and the number of ranks, from the variables that torchrun sets."""
    return Rank(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def find(case: schema.Case) -> Machine:
    """Return a case's devices, of the kind that PARITY_DEVICES names. Raises UsageError if GPUs are missing."""
    kind = devices.parse(os.environ.get("PARITY_DEVICES", DEFAULT)).kind
    strategy = case.distribution
    count, own = strategy.used_devices, rank().number if strategy.has_ranks else None
    if kind == "gpu":
        return _gpus(count, own)
    if own is not None:
        return Machine([torch.device("cpu")] * count, ["CPU (process)"] * count, None, own)
    if not strategy.is_distributed:
        return Machine([torch.device("cpu")], ["CPU"], None, None)
    return _virtual(count, torch.device("cpu"), "CPU (virtual)")


def _gpus(count: int, own: int | None) -> Machine:
    """Return a case's GPUs; of too few, ranks share them, and a single process has virtual devices on the first."""
    available = torch.cuda.device_count()
    if available == 0:
        raise UsageError("PARITY_DEVICES asks for GPUs, but torch sees none; set it to cpu:N to use N CPU devices")
    names = [
        torch.cuda.get_device_name(i % available) + (" (shared)" if count > available else "") for i in range(count)
    ]
    if count > available and own is None:
        return _virtual(count, torch.device("cuda", 0), names[0])
    return Machine([torch.device("cuda", i % available) for i in range(count)], names, None, own)


def _virtual(count: int, physical: torch.device, name: str) -> Machine:
    return Machine([torch.device(TYPE, i) for i in range(count)], [name] * count, physical, None)


def join(device: torch.device) -> None:
    """Create the process group of all ranks, if there is none yet; it is kept until the process ends."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return
    own_rank = rank()
    # NCCL refuses two ranks on one GPU; gloo works, by copying through the host.
    is_shared = device.type == "cuda" and own_rank.of > torch.cuda.device_count()
    backend = "nccl" if device.type == "cuda" and not is_shared else "gloo"
    if own_rank.of == 1:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    else:
        rendezvous = os.environ.get("PARITY_RENDEZVOUS", "env://")
        dist.init_process_group(backend, init_method=rendezvous, rank=own_rank.number, world_size=own_rank.of)
