"""A residual block with batch norm (He et al. 2015, "Deep residual learning", figure 2)."""

import torch
from torch import nn
from torch.nn import functional

from torch_impl.models.block import Block


class ResidualBlock(nn.Module):
    """Input: (batch, in_channels, height, width); output: (batch, out_channels, height, width).

    The shortcut is the identity where the channels agree, else a 1x1 convolution with batch norm.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if in_channels != out_channels:
            self.shortcut = nn.Sequential(nn.Conv2d(in_channels, out_channels, 1), nn.BatchNorm2d(out_channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # The shortcut may live on another device: started first and fetched last, it runs beside the main path.
        shortcut = self.shortcut(x)
        main = self.relu(self.bn1(self.conv1(x)))
        main = self.bn2(self.conv2(main))
        return self.relu(main + shortcut.to(main.device))

    def blocks(self) -> list[Block]:
        """Before and after the main path's first ReLU; both need the input."""

        def first(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return functional.relu(self.bn1(self.conv1(x))), x

        def second(main: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return functional.relu(self.bn2(self.conv2(main)) + self.shortcut(x))

        return [Block([self.conv1, self.bn1], first), Block([self.conv2, self.bn2, self.shortcut], second)]
