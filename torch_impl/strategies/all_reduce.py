"""Data parallelism written out: a process per device, each with its own samples, and an explicit all_reduce.

The gradients of all ranks are summed before every update. DistributedDataParallel (ddp.py) does the same by itself.
"""

import itertools
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from torch_impl.losses import Loss
from torch_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, Placed, Steps, evaluate

__all__ = ["batches", "evaluate", "place", "train"]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]) -> Placed:
    """Put a replica of the model on this rank's device, with rank 0's weights."""
    model = make_model().to(devices[dist.get_rank()])
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    return model, make_optimizer(model.parameters())


def batches(samples: Dataset, batch: int, steps: int, seed: int) -> Iterator[list[MicroBatch]]:
    """Yield this rank's part of `steps` batches, reshuffled in every epoch.

    `samples` returns (inputs, target) for a list of indices. If the samples cannot be divided evenly among the ranks,
    the sampler repeats some, so that all ranks always have equally many.
    """
    ranks = dist.get_world_size()
    sampler = DistributedSampler(samples, shuffle=True, seed=seed)
    loader = DataLoader(samples, batch // ranks, sampler=sampler, collate_fn=lambda ready: ready)

    def epochs() -> Iterator[list[MicroBatch]]:
        for epoch in itertools.count():
            sampler.set_epoch(epoch)  # otherwise every epoch repeats the order of the first
            for inputs, target in loader:
                yield [(inputs, target, 1 / ranks)]

    return itertools.islice(epochs(), steps)


def train(model: nn.Module, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step, the same on every rank; then call `on_step`."""
    model.train()
    device = next(model.parameters()).device
    for micro_batches in steps:
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            outputs = model(*(tensor.to(device) for tensor in inputs))
            value = loss(outputs, target.to(device)) * share
            value.backward()
        for parameter in model.parameters():
            # SUM, not AVG: each rank's loss has been multiplied by its share of the batch, so the sum is the mean.
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        on_step()
