"""Linear, ReLU, Linear."""

import torch
from torch import nn


class SimpleBlock(nn.Module):
    """Input: (batch, inputs); output: (batch, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.linear1 = nn.Linear(inputs, hidden)
        self.relu = nn.ReLU()
        self.linear2 = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(self.relu(self.linear1(x)))
