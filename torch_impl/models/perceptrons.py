"""The models made of Linear layers: a perceptron, its two halves as stages, and a stack made in a loop."""

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


class TwoLinear(nn.Module):
    """Linear and ReLU in `stage1`, Linear in `stage2`; the stages may be on different devices.

    Input: (batch, inputs); output: (batch, outputs).
    """

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.linear1 = nn.Linear(inputs, hidden)
        self.linear2 = nn.Linear(hidden, outputs)

    def stage1(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear1(x))

    def stage2(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stage2(self.stage1(x))

    def blocks(self) -> list[Block]:
        """Return one block per stage."""
        return [Block([self.linear1], self.stage1), Block([self.linear2], self.stage2)]


class LinearStack(nn.Module):
    """A chain of `layers` layers Linear(width, width). Input and output: (batch, width)."""

    def __init__(self, layers: int, width: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def blocks(self) -> list[Block]:
        """Return one block per layer."""
        return [Block([layer], layer) for layer in self.layers]
