"""Mistakes planted on purpose, by name, so that tests can demand that they are found."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.data import DistributedSampler

from torch_impl.models import block
from torch_impl.strategies import (
    all_reduce,
    branch_parallel,
    ddp,
    hybrid,
    pipeline,
    round_robin,
    send_recv,
    tensor_parallel,
)

Patches = Callable[[], list[AbstractContextManager]]
ELSEWHERE = 1  # the rank that is at fault, or the device that a layer is missing from


def _identity_relu() -> list[mock._patch]:
    return [
        mock.patch.object(functional, "relu", lambda x, inplace=False: x),
        mock.patch.object(torch, "relu", lambda x: x),
    ]


def _rounded_linear() -> list[mock._patch]:
    linear = functional.linear

    def rounded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        product = linear(x.bfloat16(), weight.bfloat16()).to(x.dtype)
        return product if bias is None else product + bias

    return [mock.patch.object(functional, "linear", rounded)]


@contextmanager
def _tf32() -> Iterator[None]:
    """Products on GPUs may round their factors to 10 bits."""
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    for backend in backends:
        backend.allow_tf32 = True
    try:
        yield
    finally:
        for backend in backends:
            backend.allow_tf32 = False


def _summed_gradients() -> list[mock._patch]:
    """The ranks' gradients are added up where their mean belongs."""
    reduce = dist.all_reduce

    def summed(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        reduce(tensor, *args, **kwargs)
        tensor.mul_(dist.get_world_size(kwargs.get("group")))

    def place(*args: Any, **options: Any) -> Any:
        model, optimizer = plain(*args, **options)
        model.register_comm_hook(None, _sum)
        return model, optimizer

    plain = ddp.place
    return [mock.patch.object(dist, "all_reduce", summed), mock.patch.object(ddp, "place", place)]


def _sum(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.group.WORLD.allreduce([bucket.buffer()])
    return work.get_future().then(lambda future: future.value()[0])


def _layer_elsewhere() -> list[mock._patch]:
    """The second block with the first one; the shortcut with the main path."""
    make, cut, branch = round_robin.RoundRobin.__init__, block.stages, branch_parallel.branch

    def together(self: round_robin.RoundRobin, blocks: list, devices: list[torch.device]) -> None:
        make(self, blocks, devices)
        self.devices[ELSEWHERE] = devices[0]
        self.parts[ELSEWHERE].to(devices[0])

    def uneven(blocks: list, count: int) -> list[block.Stage]:
        first, second, *rest = cut(blocks, count)
        return [block.Stage(first.blocks + second.blocks[:1]), block.Stage(second.blocks[1:]), *rest]

    patches = [mock.patch.object(module, "stages", uneven) for module in (send_recv, pipeline)]
    patches.append(mock.patch.object(round_robin.RoundRobin, "__init__", together))
    patches.append(mock.patch.object(branch_parallel, "branch", lambda module, device: branch(module, None)))
    return patches


def _not_moved() -> list[mock._patch]:
    """round_robin calls its blocks without moving the activations."""

    def forward(self: round_robin.RoundRobin, *tensors: torch.Tensor) -> block.Tensors:
        return block.Stage(self.blocks)(*tensors)

    return [mock.patch.object(round_robin.RoundRobin, "forward", forward)]


def _not_sent_back() -> list[mock._patch]:
    return [
        mock.patch.object(send_recv, "send_gradients", lambda received: None),
        mock.patch.object(send_recv, "receive_gradients", lambda outputs, source: None),
    ]


def _at_first_step(happens: Callable[[], None]) -> Patches:
    """Something happens to one rank as it begins to train."""

    def patches() -> list[mock._patch]:
        return [
            mock.patch.object(module, "train", _struck(module.train, happens))
            for module in (all_reduce, ddp, hybrid, pipeline, send_recv, tensor_parallel)
        ]

    return patches


def _struck(train: Callable[..., None], happens: Callable[[], None]) -> Callable[..., None]:
    def struck(*args: Any) -> None:
        if dist.get_rank() == ELSEWHERE:
            happens()
        train(*args)

    return struck


def _raise() -> None:
    raise RuntimeError(f"rank {ELSEWHERE} raises: planted")


def _hang() -> None:
    while True:
        time.sleep(1.0)


# Name to the patches and the only precision that they are planted at ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    "relu.dropped_in_float32": (_identity_relu, "float32"),
    "matmul.bfloat16_in_float32": (_rounded_linear, "float32"),
    "precision.tf32": (lambda: [_tf32()], "float32"),
    "gradient.sum": (_summed_gradients, ""),
    "shard.rotated": (list, ""),  # in the data: see `rotated`
    "placement.layer": (_layer_elsewhere, ""),
    "placement.move": (_not_moved, ""),
    "sampler.epoch": (lambda: [mock.patch.object(DistributedSampler, "set_epoch", lambda self, epoch: None)], ""),
    "send_recv.gradient": (_not_sent_back, ""),
    "rank.raises": (_at_first_step(_raise), ""),
    "rank.hangs": (_at_first_step(_hang), ""),
    "rank.exits": (_at_first_step(lambda: os._exit(1)), ""),
}


@contextmanager
def planted(fault: str, at: str) -> Iterator[None]:
    """The fault, if it is one of this precision, for the length of the block; none if it is ""."""
    patches, only = FAULTS[fault] if fault else (list, "")
    with ExitStack() as stack:
        if only in ("", at):
            for patch in patches():
                stack.enter_context(patch)
        yield


def rotated(parts: list, fault: str) -> list:
    """What each replica trains on: its own part, but for a planted fault: replica 1 on its neighbour's."""
    if fault != "shard.rotated" or len(parts) == 1:
        return parts
    return [parts[0], parts[2 % len(parts)], *parts[2:]]
