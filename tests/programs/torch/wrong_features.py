"""A linear layer that was made for another image size."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Net(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.out = nn.Linear(features, 3)

    def forward(self, x):
        hidden = torch.relu(self.conv(x)).flatten(1)
        return self.out(hidden)  # fault


def build(features=4 * 8 * 8):
    model = Net(features).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build_right():
    return build(features=4 * 6 * 6)
