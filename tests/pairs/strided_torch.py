"""Strided convolutions, transposed ones and pools on one, two or three axes, padded alike at both ends."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
POOLS: dict[int, Any] = {1: functional.max_pool1d, 2: functional.max_pool2d}


class Encoder(nn.Module):
    def __init__(self, axes: int) -> None:
        super().__init__()
        self.conv1 = CONVOLUTIONS[axes](3, 6, 3, stride=2, padding=1)
        self.conv2 = CONVOLUTIONS[axes](6, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.conv2(functional.relu(self.conv1(image))))
        return self.head(x.flatten(2).mean(-1))


class Decoder(nn.Module):
    def __init__(self, axes: int) -> None:
        super().__init__()
        self.up = TRANSPOSED[axes](3, 6, 3, stride=2, padding=1, output_padding=1)
        self.end = CONVOLUTIONS[axes](6, 4, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.end(functional.elu(self.up(image)))


class Pooled(nn.Module):
    def __init__(self, axes: int) -> None:
        super().__init__()
        self.conv, self.pool = CONVOLUTIONS[axes](3, 6, 3), POOLS[axes]
        self.head = nn.Linear(6, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.conv(image), 3, 2, 1).flatten(2).mean(-1))


class Both(nn.Module):
    """An encoder and a decoder, so that one fault hides another."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.down = CONVOLUTIONS[axes](3, 6, 3, stride=2, padding=1)
        self.up = TRANSPOSED[axes](6, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.up(functional.relu(self.down(image)))


KINDS = {"encoder": Encoder, "decoder": Decoder, "pooled": Pooled, "both": Both}


def build(kind: str, axes: int) -> nn.Module:
    return KINDS[kind](axes)
