"""A model of the layers that the five built-in models lack, as a subject for planted faults."""

import torch
from torch import nn

from parity.config import schema


def build(config: schema.Specimen) -> nn.Module:
    """Build the model that `config` describes."""
    return Specimen(config.classes)


class Specimen(nn.Module):
    """A chain of convolution, norm, activation, pooling and dense layers: (batch, 3, 16, 16) to (batch, classes)."""

    def __init__(self, classes: int):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.group_norm = nn.GroupNorm(2, 8)
        self.gelu = nn.GELU()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(512, 512)
        self.head = nn.Linear(512, classes)
        self.softmax = nn.Softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.children():
            x = module(x)
        return x
