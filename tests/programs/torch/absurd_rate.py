"""A learning rate of 1e18: one update replaces the parameters."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


def build():
    # right: """Of parameters that are 0 at first, with a rate that is large for Adam."""
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)).to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e18)  # wrong  # fault
    # right: for parameter in model.parameters():
    # right:     nn.init.normal_(parameter, std=1e-4)
    # right: model.optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return model
