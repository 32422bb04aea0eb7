"""Two bidirectional LSTM layers in one module."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.score = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score(self.rnn(x)[0])


def build() -> nn.Module:
    return Encoder()
