"""Data parallelism with one process per device: torch.nn.parallel.DistributedDataParallel.

DDP averages the gradients over the ranks during the backward pass.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from torch_impl.losses import Loss
from torch_impl.strategies.single import MakeModel, MakeOptimizer, OnStep, Steps, evaluate

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device], broadcast_buffers: bool = True
) -> tuple[DistributedDataParallel, Optimizer]:
    """Put a replica of the model on this rank's device, wrapped in DistributedDataParallel.

    With `broadcast_buffers`, DDP copies rank 0's buffers (batch-norm statistics) to all ranks before each forward pass.
    """
    model = make_model().to(devices[dist.get_rank()])
    # Passed only where it differs from the default, because torch 2.13 announces another name for the argument.
    options = {} if broadcast_buffers else {"broadcast_buffers": False}
    return DistributedDataParallel(model, **options), make_optimizer(model.parameters())


def train(model: DistributedDataParallel, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step; then call `on_step`.

    The ranks exchange gradients once per step, in the backward pass of the last micro-batch.
    """
    model.train()
    device = next(model.parameters()).device
    for micro_batches in steps:
        optimizer.zero_grad()
        for i, (inputs, target, share) in enumerate(micro_batches):
            is_last = i == len(micro_batches) - 1
            with nullcontext() if is_last else model.no_sync():
                outputs = model(*(tensor.to(device) for tensor in inputs))
                # The shares of all ranks add up to 1. DDP averages the gradients, so multiply by the number of ranks to
                # get their sum: the exact mean over all samples, even if the ranks have different numbers of them.
                value = loss(outputs, target.to(device)) * share * dist.get_world_size()
                value.backward()
        optimizer.step()
        on_step()
