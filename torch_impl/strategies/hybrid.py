"""Data parallelism over pipelines, on a mesh of ranks: a replica per row, a stage per column."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.optim import Optimizer

from torch_impl.losses import Loss
from torch_impl.strategies import pipeline
from torch_impl.strategies.pipeline import Pipeline, evaluate
from torch_impl.strategies.single import MakeModel, MakeOptimizer, OnStep, Steps

__all__ = ["evaluate", "place", "train"]
STAGES = 2


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[torch.device],
    example: tuple[torch.Tensor, ...],
    schedule: str = "gpipe",
    dim: int = 0,
    stage_blocks: Sequence[int] = (),
) -> tuple[Pipeline, Optimizer]:
    """Put this rank's stage on its device: ranks 2r and 2r + 1 are the stages of replica r."""
    shape = (dist.get_world_size() // STAGES, STAGES)
    mesh = init_device_mesh(devices[0].type, shape, mesh_dim_names=("replica", "stage"))
    columns = mesh.get_group("stage")
    model, optimizer = pipeline.place(
        make_model, make_optimizer, devices, example, schedule, dim, stage_blocks, columns
    )
    model.replicas = mesh.get_group("replica")  # the ranks that have the same stage
    return model, optimizer


def train(model: Pipeline, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step; each stage sums its gradients over the replicas. Then call `on_step`."""
    model.module.train()
    for micro_batches in steps:
        optimizer.zero_grad()
        model.step(micro_batches, loss)
        for parameter in model.module.parameters():
            # SUM, not AVG: each loss has been multiplied by its samples' share of the whole batch.
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM, group=model.replicas)
        optimizer.step()
        on_step()
