"""Which devices a case has here, and the process group of its ranks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist

from parity.config import devices, schema
from parity.core.errors import UsageError
from parity.runtime.drive import Rank
from torch_impl.harness.virtual_devices import TYPE, virtual_devices

DEFAULT = "cpu:2"  # where nothing else is said


class Machine(NamedTuple):
    """The logical devices of a case, what each is, and what computes for them if they are virtual.

    `rank`: this process's own device if every process has one.
    """

    logical: list[torch.device]
    names: list[str]
    physical: torch.device | None
    rank: int | None

    def index(self, tensor: torch.Tensor) -> int | None:
        """The logical device of a tensor; None on the host of devices that are elsewhere."""
        if self.rank is not None:
            return self.rank
        if tensor.device.type != self.logical[0].type:
            return None
        return tensor.device.index or 0

    @contextmanager
    def available(self) -> Iterator[None]:
        """The virtual devices, if there are any, and the process group, if one is needed."""
        if self.rank is not None:
            join(self.logical[self.rank])
        if self.physical is None:
            yield
        else:
            with virtual_devices(self.physical):
                yield


def rank() -> Rank:
    """This process among its like, as torchrun says it."""
    return Rank(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def find(case: schema.Case) -> Machine:
    """The devices of a case: PARITY_DEVICES says of which kind. Raises UsageError."""
    kind = devices.parse(os.environ.get("PARITY_DEVICES", DEFAULT)).kind
    count = 1 if case.strategy == "single" else case.devices
    own = rank().number if devices.has_ranks(case) else None
    if kind == "gpu":
        return _gpus(count, own)
    if own is not None:
        return Machine([torch.device("cpu")] * count, ["CPU (process)"] * count, None, own)
    if case.strategy == "single":
        return Machine([torch.device("cpu")], ["CPU"], None, None)
    return _virtual(count, torch.device("cpu"), "CPU (virtual)")


def _gpus(count: int, own: int | None) -> Machine:
    """GPUs; fewer than devices are shared, by ranks as they are, else by virtual devices on the first."""
    there = torch.cuda.device_count()
    if there == 0:
        raise UsageError("PARITY_DEVICES names GPUs, and torch sees none")
    names = [torch.cuda.get_device_name(i % there) + (" (shared)" if count > there else "") for i in range(count)]
    if count > there and own is None:
        return _virtual(count, torch.device("cuda", 0), names[0])
    return Machine([torch.device("cuda", i % there) for i in range(count)], names, None, own)


def _virtual(count: int, physical: torch.device, name: str) -> Machine:
    return Machine([torch.device(TYPE, i) for i in range(count)], [name] * count, physical, None)


def join(device: torch.device) -> None:
    """The process group of all ranks: made at the first case that needs it, and kept until the process ends."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return
    here = rank()
    # NCCL refuses two ranks on one GPU; gloo copies through the host.
    shared = device.type == "cuda" and here.of > torch.cuda.device_count()
    backend = "nccl" if device.type == "cuda" and not shared else "gloo"
    if here.of == 1:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    else:
        meeting = os.environ.get("PARITY_RENDEZVOUS", "env://")
        dist.init_process_group(backend, init_method=meeting, rank=here.number, world_size=here.of)
