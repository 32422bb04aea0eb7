"""A stack of Linear layers made in a loop, with nothing between them."""

import torch
from torch import nn

from torch_impl.models.block import Block


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
