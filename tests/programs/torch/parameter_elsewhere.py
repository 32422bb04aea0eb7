"""A parameter that is made on its own device, and given to a model that lives on another one."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x):
        return self.linear(x) * self.scale


def build():
    model = build_right()
    model.scale = nn.Parameter(torch.full((16,), 0.5))  # fault
    model.optimizer = torch.optim.Adam(model.parameters())
    return model


def build_right():
    model = Scaled().to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    return model
