"""A gate whose weight is a new parameter in each call."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, x):
        self.weight = nn.Parameter(torch.ones(self.width, device=x.device))  # fault
        return x * torch.sigmoid(self.weight)


class GateRight(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.sigmoid(self.weight)


class Net(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.body, self.gate, self.out = nn.Linear(16, 8), gate, nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.gate(self.body(x)))


def optimized(model):
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    return optimized(Net(Gate(8)).to("cuda"))  # wrong
    # right: return optimized(Net(GateRight(8)).to("cuda"))


def step(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda")).square().mean().backward()
    model.optimizer.step()
