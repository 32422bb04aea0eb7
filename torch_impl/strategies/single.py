"""Everything on one device: the plain training loop, with gradient accumulation."""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torch_impl.losses import Loss
from torch_impl.optimizers import clip_by_global_norm

MicroBatch = tuple[tuple[torch.Tensor, ...], torch.Tensor, float]  # inputs, target, share of the step


def train(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    clip_norm: float | None = None,
    schedule: LRScheduler | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step, from the gradients of its micro-batches added up; then `on_step()`."""
    model.train()
    for micro_batches in steps:
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            value = loss(model(*inputs), target) * share
            value.backward()
        if clip_norm is not None:
            clip_by_global_norm(model.parameters(), clip_norm)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        on_step()


@torch.no_grad()
def evaluate(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The outputs as a user of the trained model gets them."""
    model.eval()
    return model(*inputs)
