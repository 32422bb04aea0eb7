"""Convolutions over time and space."""

from torch import nn


def build(pools: bool = False) -> nn.Module:
    shrink = nn.MaxPool3d((1, 2, 2)) if pools else nn.Conv3d(6, 6, (1, 2, 2), stride=(1, 2, 2))
    return nn.Sequential(
        nn.Conv3d(3, 6, (3, 3, 3), padding="same"),
        nn.ReLU(),
        shrink,
        nn.Conv3d(6, 8, (2, 3, 3), stride=(2, 1, 1)),
        nn.ELU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
