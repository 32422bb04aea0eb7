"""Dropout as a function, and within torch's own encoder layer: of the attention, and of what follows."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate
        self.embed = nn.Linear(6, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 2, 48, rate, batch_first=True)
        self.out = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.dropout(self.embed(x), self.rate, self.training)
        return self.out(functional.dropout(self.encoder(x), self.rate, training=self.training))


def build(rate: float) -> nn.Module:
    return Net(rate)
