"""Faults of distribution: gradients that are combined wrongly, wrong devices, processes that fail."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from parity.selftest.mutate import Patches, replaced, together
from torch_impl.models import block
from torch_impl.models.simple_block import SimpleBlock
from torch_impl.strategies import all_reduce, branch_parallel, ddp, hybrid, pipeline, send_recv, tensor_parallel
from torch_impl.strategies.round_robin import RoundRobin

Reduce = Callable[..., None]
Place = Callable[..., tuple[DistributedDataParallel, Optimizer]]
Cut = Callable[..., list[block.Stage]]


# Reductions.


def _summed(reduce: Reduce) -> Reduce:
    """Sum the gradients over the ranks where they should be averaged."""

    def changed(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        reduce(tensor, *args, **kwargs)
        tensor.mul_(dist.get_world_size(kwargs.get("group")))

    return changed


def _summed_by_hook(place: Place) -> Place:
    def changed(*args: Any, **options: Any) -> tuple[DistributedDataParallel, Optimizer]:
        model, optimizer = place(*args, **options)
        model.register_comm_hook(None, _sum)
        return model, optimizer

    return changed


def _sum(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.group.WORLD.allreduce([bucket.buffer()])
    return work.get_future().then(lambda future: future.value()[0])


def _weights_only(reduce: Reduce) -> Reduce:
    """Reduce the gradients of weights, but not of biases."""

    def changed(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if tensor.dim() > 1:
            reduce(tensor, *args, **kwargs)

    return changed


def _without_exchange(forward: Callable) -> Callable:
    """Let every rank keep its own gradients."""

    def changed(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self.no_sync():
            return forward(self, *args, **kwargs)

    return changed


def _own_buffers(place: Place) -> Place:
    return lambda *args, **options: place(*args, broadcast_buffers=False)


def _stopped(forward: Callable) -> Callable:
    """Let no gradient flow back through linear1."""

    def changed(self: SimpleBlock, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear1(x)
        return self.linear2(self.relu(hidden.detach() + 0 * hidden))

    return changed


# Placement: correct values on wrong devices.


def _second_with_first(make: Callable[..., None]) -> Callable[..., None]:
    """Put the second block on the first one's device."""

    def changed(self: RoundRobin, blocks: list[block.Block], devices: list[torch.device]) -> None:
        make(self, blocks, devices)
        self.devices[1] = devices[0]
        self.parts[1].to(devices[0])

    return changed


def _uneven(cut: Cut) -> Cut:
    """Put the second stage's first block into the first stage."""

    def changed(blocks: list[block.Block], count: int, sizes: Sequence[int] = ()) -> list[block.Stage]:
        first, second, *rest = cut(blocks, count, sizes)
        return [block.Stage(first.blocks + second.blocks[:1]), block.Stage(second.blocks[1:]), *rest]

    return changed


def _with_main_path(branch: Callable[..., None]) -> Callable[..., None]:
    return lambda module, device: branch(module, None)


def _not_moved(forward: Callable[..., block.Tensors]) -> Callable[..., block.Tensors]:
    """Let round_robin call its blocks without moving the activations."""
    return lambda self, *tensors: block.Stage(self.blocks)(*tensors)


# Processes.


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it begins to train."""

    def change(train: Callable[..., None]) -> Callable[..., None]:
        def changed(*args: Any) -> None:
            if dist.get_rank() == 1:
                misbehave()
            train(*args)

        return changed

    strategies = all_reduce, ddp, hybrid, pipeline, send_recv, tensor_parallel
    return together(*(replaced(strategy, "train", change) for strategy in strategies))


def _raise() -> None:
    raise RuntimeError("planted in rank 1")


FAULTS: dict[str, Patches] = {
    "gradient.sum": together(replaced(dist, "all_reduce", _summed), replaced(ddp, "place", _summed_by_hook)),
    "gradient.unreduced": replaced(DistributedDataParallel, "forward", _without_exchange),
    "gradient.partly_unreduced": replaced(dist, "all_reduce", _weights_only),
    "gradient.kept": replaced(Optimizer, "zero_grad", lambda zero_grad: lambda self: None),
    "gradient.stopped": replaced(SimpleBlock, "forward", _stopped),
    "batch_norm.buffers": replaced(ddp, "place", _own_buffers),
    "send_recv.gradient": together(
        replaced(send_recv, "send_gradients", lambda send: lambda received: None),
        replaced(send_recv, "receive_gradients", lambda receive: lambda outputs, source: None),
    ),
    "placement.layer": together(
        replaced(RoundRobin, "__init__", _second_with_first),
        replaced(send_recv, "stages", _uneven),
        replaced(pipeline, "stages", _uneven),
        replaced(branch_parallel, "branch", _with_main_path),
    ),
    "placement.move": replaced(RoundRobin, "forward", _not_moved),
    "rank.raises": _in_rank_1(_raise),
    "rank.hangs": _in_rank_1(lambda: time.sleep(1e6)),
    "rank.exits": _in_rank_1(lambda: os._exit(1)),
}
