"""A residual block with batch norm (He et al. 2015, "Deep residual learning", figure 2)."""

import torch
from torch import nn
from torch.nn import functional

from torch_impl.models.block import Block


class ResidualBlock(nn.Module):
    """A residual block with a 3x3-3x3 main path and a shortcut.

    Input: (batch, in_channels, height, width); output: (batch, out_channels, height, width). The shortcut is the
    identity if the numbers of channels agree, otherwise a 1x1 convolution with batch norm.
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
        # branch_parallel puts the shortcut on another device. It is started first and fetched last, so that it runs
        # beside the main path.
        shortcut = self.shortcut(x)
        main = self.relu(self.bn1(self.conv1(x)))
        main = self.bn2(self.conv2(main))
        return self.relu(main + shortcut.to(main.device))

    def blocks(self) -> list[Block]:
        """Return two blocks, cut after the first ReLU of the main path; the input is passed along for the shortcut."""

        def first(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return functional.relu(self.bn1(self.conv1(x))), x

        def second(main: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return functional.relu(self.bn2(self.conv2(main)) + self.shortcut(x))

        return [Block([self.conv1, self.bn1], first), Block([self.conv2, self.bn2, self.shortcut], second)]
