"""Models with tables that are random, in whole or in part, or are computed: none is trained but where it says so."""

import math

import numpy as np
import torch
from torch import nn


def sinusoids(length=12, width=16, base=10000.0):
    angles = torch.arange(float(length))[:, None] / base ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Positions(nn.Module):
    """Sinusoids and the token [CLS], whose row is random; `held`: in a buffer, a frozen embedding, or trained."""

    def __init__(self, last=False, held="buffer"):
        super().__init__()
        cls, self.held = 0.02 * torch.randn(1, 16), held
        table = torch.cat([sinusoids(), cls] if last else [cls, sinusoids()])
        self.positions = nn.Embedding.from_pretrained(table, freeze=held != "trained") if held != "buffer" else None
        if held == "buffer":
            self.register_buffer("table", table)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(x + (self.table if self.held == "buffer" else self.positions.weight)[: x.shape[1]])


class Fourier(nn.Module):
    """Random Fourier features; `phases`: with cosines alone, of random phases."""

    def __init__(self, sigma=2.0, phases=False):
        super().__init__()
        self.register_buffer("B", torch.randn(4, 8) * sigma * 2 * math.pi)
        self.register_buffer("phase", 2 * math.pi * torch.rand(8) if phases else None)
        self.fc = nn.Linear(8 if phases else 16, 3)

    def forward(self, x):
        z = x @ self.B
        return self.fc(torch.cos(z + self.phase) if self.phase is not None else torch.cat([z.sin(), z.cos()], -1))


class Rotary(nn.Module):
    """Frequencies, each a little off at random."""

    def __init__(self, jitter=0.05):
        super().__init__()
        self.fc = nn.Linear(16, 16)
        frequencies = 10000.0 ** (-torch.arange(8.0) / 8) * (1 + jitter * torch.rand(8))
        self.register_buffer("inv_freq", frequencies, persistent=False)

    def forward(self, x):
        angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * self.inv_freq
        a, b = self.fc(x).chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Codebook(nn.Module):
    """The distances to random codes, of which the first is zero; `unit`: of length 1."""

    def __init__(self, unit=False):
        super().__init__()
        codes = torch.randn(10, 6)
        codes[0] = 0
        self.register_buffer("codebook", nn.functional.normalize(codes, dim=-1) if unit else codes)
        self.fc = nn.Linear(10, 3)

    def forward(self, x):
        return self.fc((x[:, None] - self.codebook).square().sum(-1))


class Reservoir(nn.Module):
    """Fixed random weights and a readout; `held`: in a frozen layer or a buffer; a part of them is zero."""

    def __init__(self, held="layer", density=1.0):
        super().__init__()
        weight = 0.4 * torch.randn(24, 6) * (torch.rand(24, 6) < density)
        self.hidden = nn.Linear(6, 24, bias=False).requires_grad_(False) if held == "layer" else None
        if held == "layer":
            self.hidden.weight.copy_(weight)
        else:
            self.register_buffer("W", weight.T.contiguous())
        self.readout = nn.Linear(24, 3)

    def forward(self, x):
        return self.readout(torch.tanh(self.hidden(x) if self.hidden is not None else x @ self.W))


class Projected(nn.Module):
    """A table that NumPy draws with a seed of its own, and so the same each time; `plain`: held as a tensor."""

    def __init__(self, plain=False):
        super().__init__()
        table = torch.tensor(np.random.RandomState(0).randn(6, 8), dtype=torch.get_default_dtype())
        if plain:
            self.table = table
        else:
            self.register_buffer("table", table)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(torch.tanh(x @ self.table))


class Plain(nn.Module):
    """A table that is computed, and held as a tensor and no buffer."""

    def __init__(self):
        super().__init__()
        self.fc, self.table = nn.Linear(16, 4), sinusoids()

    def forward(self, x):
        return self.fc(x + self.table.to(x.dtype))


class Hashed(nn.Module):
    """Whole numbers: features in a random order, with random signs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.randperm(16))
        self.register_buffer("sign", torch.randint(0, 2, (16,)) * 2.0 - 1)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(x[:, self.order] * self.sign)


class Relative(nn.Module):
    """Whole numbers that are computed, of a window's relative positions, and the trained table that they look up."""

    def __init__(self, size=3):
        super().__init__()
        grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        apart = grid[:, :, None] - grid[:, None] + size - 1
        self.register_buffer("index", apart[0] * (2 * size - 1) + apart[1])
        self.bias = nn.Parameter(torch.randn((2 * size - 1) ** 2) * 0.02)

    def forward(self, x):
        return (x @ x.transpose(1, 2) + self.bias[self.index]).softmax(-1) @ x


class Scaled(nn.Module):
    """Random columns, each at a scale of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("bands", torch.randn(4, 8) * 2.0 ** torch.arange(8))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(torch.sin(x @ self.bands))


class Nearest(nn.Module):
    """Codes by random hyperplanes: what side of each the input lies on."""

    def __init__(self):
        super().__init__()
        self.register_buffer("planes", torch.randn(6, 12))
        self.fc = nn.Linear(12, 3)

    def forward(self, x):
        return self.fc(torch.sign(x @ self.planes))


class Blocked(nn.Module):
    """A mask of attention: a few keys at random, and the diagonal; all others are -inf."""

    def __init__(self, length=8):
        super().__init__()
        allowed = (torch.rand(length, length) < 0.4) | torch.eye(length, dtype=torch.bool)
        self.register_buffer("mask", torch.zeros(length, length).masked_fill(~allowed, -math.inf))
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return (self.fc(x) @ x.transpose(1, 2) + self.mask).softmax(-1) @ x


class Pretrained(nn.Module):
    """A frozen embedding as its layer begins; `padding`: with a row of zeros."""

    def __init__(self, padding=None):
        super().__init__()
        self.tokens, self.fc = nn.Embedding(20, 8, padding_idx=padding).requires_grad_(False), nn.Linear(8, 3)

    def forward(self, ids):
        return self.fc(self.tokens(ids))
