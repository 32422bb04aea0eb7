"""A body that is frozen: on purpose, perhaps."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def build():
    model = Net().to("cuda:0")
    model.body.requires_grad_(False)  # wrong
    model.optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)  # wrong
    # right: model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model
