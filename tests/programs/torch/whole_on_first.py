"""A model without a loop, to be looked at alone: all of it goes to the first of two devices."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 4)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.second(hidden.to(self.second.weight.device))


def build():
    return Net().to("cuda:0")  # fault


def build_right():
    model = Net()
    model.first.to("cuda:0")
    model.second.to("cuda:1")
    return model
