"""A recurrent cell that keeps its own hidden state, with the graph."""

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 12), nn.Linear(12, 12)
        self.register_buffer("hidden", torch.zeros(4, 12))

    def forward(self, x):
        hidden = self.hidden  # fault
        for part in x.unbind(1):
            hidden = torch.tanh(self.inner(part) + self.outer(hidden))
        self.hidden = hidden
        return hidden


class CellRight(Cell):
    def forward(self, x):
        hidden = self.hidden.detach()
        for part in x.unbind(1):
            hidden = torch.tanh(self.inner(part) + self.outer(hidden))
        self.hidden = hidden
        return hidden


def optimized(model):
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def build():
    return optimized(Cell().to("cuda"))  # wrong
    # right: return optimized(CellRight().to("cuda"))


def step(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda")).square().mean().backward(retain_graph=True)
    model.optimizer.step()
