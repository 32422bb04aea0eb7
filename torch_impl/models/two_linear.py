"""Two stages of one Linear layer each: the smallest model that can be cut in two for model parallelism."""

import torch
from torch import nn

from torch_impl.models.block import Block


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
