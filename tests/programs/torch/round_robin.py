"""Layers placed round-robin over two devices; the activations stay where they are."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16).to(f"cuda:{number % 2}") for number in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))  # fault
        return x


class NetRight(Net):
    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = torch.relu(layer(x.to(f"cuda:{number % 2}")))
        return x


def build():
    model = Net()  # wrong
    # right: model = NetRight()
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model
