"""A small convolutional net with group normalisation and SiLU, averaged over the image."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, 8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(2, 8)
        self.act = nn.SiLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.norm1(self.stem(x)))
        x = x + self.act(self.norm2(self.conv(x)))
        return self.fc(self.pool(x).flatten(1))


def build() -> nn.Module:
    return Net()
