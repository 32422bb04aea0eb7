"""Layers made in a loop, all of them on the first device."""

import torch
from torch import nn

from tests.programs.torch.usual import with_optimizer


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(4):
            self.layers.append(nn.Linear(64, 64).to("cuda:0"))  # fault

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x.to(layer.weight.device)))
        return x


class StackRight(Stack):
    def __init__(self):
        nn.Module.__init__(self)
        self.layers = nn.ModuleList()
        for number in range(4):
            self.layers.append(nn.Linear(64, 64).to(f"cuda:{number % 2}"))


def build():
    return with_optimizer(Stack())  # wrong
    # right: return with_optimizer(StackRight())


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"]).square().mean()
    loss.backward()
    model.optimizer.step()
