"""Faults of distribution: gradients that are combined wrongly, wrong devices, processes that fail."""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from parity.selftest.mutate import Patches, replaced, together, wrapped
from torch_impl.models import block
from torch_impl.models.simple_block import SimpleBlock
from torch_impl.strategies import all_reduce, branch_parallel, ddp, hybrid, pipeline, send_recv, tensor_parallel
from torch_impl.strategies.round_robin import RoundRobin

Reduce = Callable[..., None]
Placed = tuple[DistributedDataParallel, Optimizer]


# Reductions.


def _summed(reduce: Reduce, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Sum the gradients over the ranks where they should be averaged."""
    reduce(tensor, *args, **kwargs)
    tensor.mul_(dist.get_world_size(kwargs.get("group")))


def _summed_by_hook(place: Callable[..., Placed], *args: Any, **options: Any) -> Placed:
    model, optimizer = place(*args, **options)
    model.register_comm_hook(None, _sum)
    return model, optimizer


def _sum(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.group.WORLD.allreduce([bucket.buffer()])
    return work.get_future().then(lambda future: future.value()[0])


def _weights_only(reduce: Reduce, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Reduce the gradients of weights, but not of biases."""
    if tensor.dim() > 1:
        reduce(tensor, *args, **kwargs)


def _without_exchange(forward: Callable, model: DistributedDataParallel, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Let every rank keep its own gradients."""
    with model.no_sync():
        return forward(model, *args, **kwargs)


def _own_buffers(place: Callable[..., Placed], *args: Any, **options: Any) -> Placed:
    return place(*args, broadcast_buffers=False)


def _stopped(model: SimpleBlock, x: torch.Tensor) -> torch.Tensor:
    """Let no gradient flow back through linear1."""
    hidden = model.linear1(x)
    return model.linear2(model.relu(hidden.detach() + 0 * hidden))


# Placement: correct values on wrong devices.


def _second_with_first(
    make: Callable[..., None], model: RoundRobin, blocks: list[block.Block], devices: list[torch.device]
) -> None:
    """Put the second block on the first one's device."""
    make(model, blocks, devices)
    model.devices[1] = devices[0]
    model.parts[1].to(devices[0])


def _uneven(
    cut: Callable[..., list[block.Stage]], blocks: list[block.Block], count: int, sizes: Sequence[int] = ()
) -> list[block.Stage]:
    """Put the second stage's first block into the first stage."""
    first, second, *rest = cut(blocks, count, sizes)
    return [block.Stage(first.blocks + second.blocks[:1]), block.Stage(second.blocks[1:]), *rest]


def _with_main_path(branch: Callable[..., None], module: Any, device: torch.device) -> None:
    branch(module, None)


def _not_moved(model: RoundRobin, *tensors: torch.Tensor) -> block.Tensors:
    """Let round_robin call its blocks without moving the activations."""
    return block.Stage(model.blocks)(*tensors)


# Processes.


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it begins to train."""

    def trained(train: Callable[..., None], *args: Any) -> None:
        if dist.get_rank() == 1:
            misbehave()
        train(*args)

    strategies = all_reduce, ddp, hybrid, pipeline, send_recv, tensor_parallel
    return together(*(wrapped(strategy, "train", trained) for strategy in strategies))


def _raise() -> None:
    raise RuntimeError("planted in rank 1")


FAULTS: dict[str, Patches] = {
    "gradient.sum": together(wrapped(dist, "all_reduce", _summed), wrapped(ddp, "place", _summed_by_hook)),
    "gradient.unreduced": wrapped(DistributedDataParallel, "forward", _without_exchange),
    "gradient.partly_unreduced": wrapped(dist, "all_reduce", _weights_only),
    "gradient.kept": replaced(Optimizer, "zero_grad", lambda optimizer: None),
    "gradient.stopped": replaced(SimpleBlock, "forward", _stopped),
    "batch_norm.buffers": wrapped(ddp, "place", _own_buffers),
    "send_recv.gradient": together(
        replaced(send_recv, "send_gradients", lambda received: None),
        replaced(send_recv, "receive_gradients", lambda outputs, source: None),
    ),
    "placement.layer": together(
        wrapped(RoundRobin, "__init__", _second_with_first),
        wrapped(send_recv, "stages", _uneven),
        wrapped(pipeline, "stages", _uneven),
        wrapped(branch_parallel, "branch", _with_main_path),
    ),
    "placement.move": replaced(RoundRobin, "forward", _not_moved),
    "rank.raises": _in_rank_1(_raise),
    "rank.hangs": _in_rank_1(partial(time.sleep, 1e6)),
    "rank.exits": _in_rank_1(partial(os._exit, 1)),
}
