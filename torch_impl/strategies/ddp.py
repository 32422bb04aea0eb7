"""Data parallelism, one process per device: DistributedDataParallel averages the gradients over the ranks."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from torch_impl.losses import Loss
from torch_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, evaluate

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device], broadcast_buffers: bool = True
) -> tuple[DistributedDataParallel, Optimizer]:
    """A replica on each rank's device. `broadcast_buffers`: rank 0's buffers go to all before each forward."""
    model = make_model().to(devices[dist.get_rank()])
    # Only where it is not wanted: torch 2.13 is about to give the argument another name.
    options = {} if broadcast_buffers else {"broadcast_buffers": False}
    return DistributedDataParallel(model, **options), make_optimizer(model.parameters())


def train(
    model: DistributedDataParallel,
    optimizer: Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step; the ranks exchange gradients once, in the backward of the last micro-batch."""
    model.train()
    device = next(model.parameters()).device
    for micro_batches in steps:
        optimizer.zero_grad()
        for i, (inputs, target, share) in enumerate(micro_batches):
            is_last = i == len(micro_batches) - 1
            with nullcontext() if is_last else model.no_sync():
                outputs = model(*(tensor.to(device) for tensor in inputs))
                # The shares of all ranks add up to 1, and DDP takes the mean over the ranks where the
                # sum belongs: the mean over all samples is exact, whatever number of them each rank has.
                value = loss(outputs, target.to(device)) * share * dist.get_world_size()
                value.backward()
        optimizer.step()
        on_step()
