"""A small U-net: down, up by interpolation, and what went past, joined."""

import torch
from torch import nn


def double(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.Conv2d(outside, outside, 3, padding=1))


class UNet(nn.Module):
    def __init__(self, mode: str):
        super().__init__()
        self.inc = double(2, 6)
        self.down = nn.MaxPool2d(2)
        self.mid = double(6, 8)
        self.up = nn.Upsample(scale_factor=2, mode=mode)
        self.outc = double(14, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        past = self.inc(x)
        return self.outc(torch.cat([past, self.up(self.mid(self.down(past)))], 1))


def build(mode: str) -> nn.Module:
    return UNet(mode)
