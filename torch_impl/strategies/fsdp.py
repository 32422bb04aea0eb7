"""Fully sharded data parallelism (FSDP2): `torch.distributed.fsdp.fully_shard`.

Each rank keeps a shard of every parameter, of its gradient and of the optimizer's state. A block's parameters are
gathered from all ranks before it runs, in the forward and in the backward pass, and freed after it; the gradients are
reduced and scattered, so that each rank updates its own shard (Rajbhandari et al. 2020, ZeRO, stage 3).
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim import Optimizer

from torch_impl.losses import Loss
from torch_impl.strategies.single import MakeModel, MakeOptimizer, OnStep, Steps, evaluate

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]
) -> tuple[FSDPModule, Optimizer]:
    """Shard each block of the model over all ranks, and what no block holds with the model itself.

    The optimizer is made last: its parameters are the shards.
    """
    model = make_model().to(devices[dist.get_rank()])
    mesh = init_device_mesh(devices[0].type, (dist.get_world_size(),))
    for block in model.blocks():
        if any(True for module in block.modules for _ in module.parameters()):
            fully_shard(block.modules, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, make_optimizer(model.parameters())


def train(model: FSDPModule, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step; then call `on_step`.

    The ranks exchange gradients once per step, in the backward pass of the last micro-batch; until then each rank keeps
    the gradients of the whole model.
    """
    model.train()
    device = next(model.parameters()).device
    for micro_batches in steps:
        optimizer.zero_grad()
        for i, (inputs, target, share) in enumerate(micro_batches):
            model.set_requires_gradient_sync(i == len(micro_batches) - 1)
            outputs = model(*(tensor.to(device) for tensor in inputs))
            # fully_shard averages the gradients over the ranks, as DDP does; their sum is wanted, because the shares of
            # all ranks add up to 1.
            value = loss(outputs, target.to(device)) * share * dist.get_world_size()
            value.backward()
        optimizer.step()
        on_step()
