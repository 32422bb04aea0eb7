"""A buffer that is registered after the model was moved."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)
        self.key = nn.Linear(16, 16)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        return scores.masked_fill(self.mask, -1e9).softmax(-1) @ x


def build():
    model = Masked().to("cuda:0")  # wrong
    # right: model = Masked()
    model.register_buffer("mask", torch.ones(8, 8, dtype=torch.bool).triu(1))  # fault
    # right: model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model
