"""The head was added after the optimizer was made, which does not hold it."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Net(nn.Module):
    def __init__(self, head=None):
        super().__init__()
        self.body = nn.Linear(16, 8)
        self.head = head

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def build():
    model = Net().to("cuda:0")  # wrong
    # right: model = Net(nn.Linear(8, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # fault
    model.head = nn.Linear(8, 4).to("cuda:0")  # wrong
    return model
