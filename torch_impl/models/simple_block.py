"""A two-layer perceptron: Linear, ReLU, Linear."""

import torch
from torch import nn

from torch_impl.models.block import Block


class SimpleBlock(nn.Module):
    """Linear, ReLU, Linear. Input: (batch, inputs); output: (batch, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.linear1 = nn.Linear(inputs, hidden)
        self.relu = nn.ReLU()
        self.linear2 = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(self.relu(self.linear1(x)))

    def blocks(self) -> list[Block]:
        """Return one block per layer."""
        return [Block([layer], layer) for layer in (self.linear1, self.relu, self.linear2)]
