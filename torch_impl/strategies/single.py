"""The whole model on one device: a plain training loop, with gradient accumulation."""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from torch_impl.losses import Loss

MicroBatch = tuple[tuple[torch.Tensor, ...], torch.Tensor, float]  # inputs, target, share of the step's loss
Steps = Iterable[list[MicroBatch]]
OnStep = Callable[[], None]
MakeModel = Callable[[], nn.Module]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
Placed = tuple[nn.Module, Optimizer]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]) -> Placed:
    """Put the model on the first device."""
    model = make_model().to(devices[0])
    return model, make_optimizer(model.parameters())


def train(model: nn.Module, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step, from the summed gradients of its micro-batches; then call `on_step`."""
    model.train()
    device = next(model.parameters()).device
    for micro_batches in steps:
        optimizer.zero_grad()
        for inputs, target, share in micro_batches:
            outputs = model(*(tensor.to(device) for tensor in inputs))
            value = loss(outputs, target.to(outputs.device)) * share
            value.backward()
        optimizer.step()
        on_step()


@torch.no_grad()
def evaluate(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the model's outputs in inference mode."""
    model.eval()
    device = next(model.parameters()).device
    return model(*(tensor.to(device) for tensor in inputs))
