"""A model of two outputs with a loss and an optimizer of one's own."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 10)
        self.mean = nn.Linear(10, 2)
        self.spread = nn.Linear(10, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.body(x))
        return self.mean(hidden), functional.softplus(self.spread(hidden))


def build() -> nn.Module:
    return TwoHeads()


def loss(outputs: dict[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """Huber's of the error in units of the predicted spread, and what keeps the spread small."""
    error = (target - outputs["mean"]) / (outputs["spread"] + 0.5)
    return functional.huber_loss(error, torch.zeros_like(error)) + outputs["spread"].mean()


def rmsprop(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=2**-8, eps=1e-8)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=2**-5, momentum=0.75)
