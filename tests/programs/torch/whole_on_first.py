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
    return Net().to("cuda:0")  # wrong  # fault
    # right: model = Net()
    # right: model.first.to("cuda:0")
    # right: model.second.to("cuda:1")
    # right: return model
