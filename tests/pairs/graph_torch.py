"""Layers of a graph network, a gated cell that is called twice, and a loss of the first nodes alone."""

import torch
from torch import nn
from torch.nn import functional

CHOSEN = 5


class Layer(nn.Module):
    def __init__(self, size: int, out: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(size, out)), nn.Parameter(torch.randn(out))

    def forward(self, x: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        return links @ (x @ self.weight) + self.bias


class Cell(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.gate, self.candidate = nn.Linear(2 * size, size), nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        both = torch.cat([x, state], 1)
        gate = self.gate(both).sigmoid()
        return (1 - gate) * state + gate * self.candidate(both).tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.cell, self.second = Layer(5, 6), Cell(6), Layer(6, 3)

    def forward(self, x: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        x = self.first(x, links).relu()
        state = torch.zeros_like(x)
        for _ in range(2):
            state = self.cell(x, state)
        return self.second(state, links)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    optimizer.zero_grad()
    chosen = torch.arange(8) < CHOSEN
    loss = functional.cross_entropy(model(batch["x"], batch["links"])[chosen], batch["target"][chosen])
    loss = loss + 0.01 * model.first.weight.square().sum()
    loss.backward()
    optimizer.step()
    return loss
