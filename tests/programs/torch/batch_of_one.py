"""A batch norm in a program whose batches have one sample."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(16, 32), nn.Linear(32, 4)
        self.norm = nn.BatchNorm1d(32)  # fault

    def forward(self, x):
        return self.out(self.norm(self.body(x)).relu())


class NetRight(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(1, 32)


def optimized(model):
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    return optimized(Net().to("cuda"))  # wrong
    # right: return optimized(NetRight().to("cuda"))


def step(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda")).square().mean().backward()
    model.optimizer.step()
