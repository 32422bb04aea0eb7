"""Causal, dilated convolutions over time, with gates."""

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.pad = (dilation, 0)
        self.filter_conv = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.gate_conv = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.residual = nn.Conv1d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = functional.pad(x, self.pad)
        return x + self.residual(torch.tanh(self.filter_conv(padded)) * torch.sigmoid(self.gate_conv(padded)))


class WaveNet(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.start = nn.Conv1d(2, channels, 1)
        self.layers = nn.ModuleList(Layer(channels, 2**i) for i in range(3))
        self.end = nn.Conv1d(channels, 4, 1)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = self.start(wave)
        for layer in self.layers:
            x = layer(x)
        return self.end(functional.relu(x))


def build(channels: int) -> nn.Module:
    return WaveNet(channels)
