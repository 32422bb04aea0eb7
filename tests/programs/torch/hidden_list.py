"""Blocks in a plain Python list: never moved, never trained."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [nn.Linear(16, 16) for _ in range(3)]  # fault
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(x)


class NetRight(Net):
    def __init__(self):
        nn.Module.__init__(self)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 4)


def on_gpu(model):
    model = model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    return on_gpu(Net())  # wrong
    # right: return on_gpu(NetRight())
