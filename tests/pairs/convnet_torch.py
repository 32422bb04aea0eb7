"""Convolutions with every padding and stride that people use, pools, and a flatten before the head."""

from torch import nn


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.ReLU(),
        nn.Conv2d(8, 8, 4, padding="same"),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=1, padding=1),
        nn.Conv2d(12, 12, 3, dilation=2),
        nn.ReLU(),
        nn.Conv2d(12, 16, (1, 3), padding=(0, 1), bias=False),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 3 * 2, 7),
    )
