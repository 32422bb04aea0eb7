"""Every weight is square, and some are bare parameters of modules of their own."""

import torch
from torch import nn


class Mix(nn.Module):
    """x @ weight."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim) / dim**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Gate(nn.Module):
    """x times what a square matrix, taken as nn.Linear takes it, lets through."""

    def __init__(self, dim: int):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(dim, dim) / dim**0.5)
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x @ self.gate.T + self.shift)


class Net(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.fc_in = nn.Linear(dim, dim)
        self.mix1 = Mix(dim)
        self.gate = Gate(dim)
        self.mix2 = Mix(dim)
        self.fc_out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.fc_in(x))
        x = x + torch.tanh(self.mix1(x))
        return self.fc_out(self.mix2(self.gate(x)))


def build(dim: int) -> nn.Module:
    return Net(dim)
