"""Many equal layers, and no name that tells which is which."""

from torch import nn


def build(depth: int) -> nn.Module:
    return nn.Sequential(*(part for _ in range(depth) for part in (nn.Linear(10, 10), nn.Tanh())))
