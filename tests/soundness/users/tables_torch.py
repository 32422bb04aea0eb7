"""Tables that torch's builders compute or draw: positions, frequencies, indices, statistics."""

import math

import numpy as np
import torch
from torch import Tensor, nn


def sinusoids(rows: int, dim: int, base: float = 10000.0, first: int = 0) -> Tensor:
    """Sines and cosines by turns."""
    angles = (torch.arange(rows) + first)[:, None] / base ** (torch.arange(0, dim, 2) / dim)
    return torch.stack([torch.sin(angles), torch.cos(angles)], -1).flatten(1)


class Positions(nn.Module):
    """`drawn`: which part of the table is random: "first", "last", "columns" or none of it."""

    def __init__(self, drawn: str = ""):
        super().__init__()
        table = sinusoids(6, 8)
        if drawn == "first":
            table = torch.cat([torch.randn(1, 8), sinusoids(5, 8)])
        elif drawn == "last":
            table = torch.cat([sinusoids(4, 8), torch.randn(2, 8)])
        elif drawn == "columns":
            table = torch.cat([sinusoids(6, 4), torch.randn(6, 4)], 1)
        self.register_buffer("table", table)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.table)


class Frozen(nn.Module):
    """Positions as an embedding that is not trained."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Embedding.from_pretrained(sinusoids(6, 8), freeze=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.positions(torch.arange(6)))


class Features(nn.Module):
    """Random Fourier features. `scale`: of the frequencies; `factor`: in forward; `signs`: they are 1 or -1."""

    def __init__(self, scale: float = 1.0, factor: float = 2 * math.pi, signs: bool = False, even: bool = False):
        super().__init__()
        drawn = torch.rand(4, 16) * 2 - 1 if even else torch.randn(4, 16)
        self.register_buffer("frequencies", scale * (torch.sign(drawn) if signs else drawn))
        self.head = nn.Linear(32, 4)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        angles = self.factor * x @ self.frequencies
        return self.head(torch.cat([torch.cos(angles), torch.sin(angles)], -1))


class Phases(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 32), nn.Linear(32, 4)
        self.register_buffer("phases", 2 * math.pi * torch.rand(32))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cos(self.body(x) + self.phases))


class Prototypes(nn.Module):
    """Similarities to fixed random vectors, the first of which is zero."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 6)
        self.register_buffer("prototypes", torch.randn(5, 6))
        self.prototypes[0] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) @ self.prototypes.T


class Rotary(nn.Module):
    """Halves are rotated against each other."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("inverse", 1 / 10000 ** (torch.arange(0, 8, 2) / 8))

    def rotated(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[1])[:, None] * self.inverse
        angles = torch.cat([angles, angles], -1)
        left, right = x.chunk(2, -1)
        return x * torch.cos(angles) + torch.cat([-right, left], -1) * torch.sin(angles)

    def forward(self, x: Tensor) -> Tensor:
        return self.rotated(self.query(x)) @ self.rotated(self.key(x)).transpose(1, 2)


class Window(nn.Module):
    """Attention within a window of 2 x 3, with a bias for each distance."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(15))
        self.value = nn.Linear(8, 8)
        places = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None]
        self.register_buffer("index", (apart[0] + 1) * 5 + apart[1] + 2)

    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.transpose(1, 2) / math.sqrt(8) + self.bias[self.index]
        return torch.softmax(scores, -1) @ self.value(x)


class Slopes(nn.Module):
    """Attention with linear biases, four heads of size 2."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(8, 8)
        slopes = 2.0 ** (-2 * torch.arange(1, 5))
        apart = torch.arange(6)[None] - torch.arange(6)[:, None]
        self.register_buffer("biases", -apart.abs() * slopes[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (4, 2)).transpose(1, 2)
        chances = torch.softmax(heads @ heads.transpose(2, 3) / math.sqrt(2) + self.biases, -1)
        values = self.value(x).unflatten(-1, (4, 2)).transpose(1, 2)
        return (chances @ values).transpose(1, 2).flatten(2)


def slopes() -> nn.Module:
    return Slopes()


class Standard(nn.Module):
    """By the mean and deviation of a data set."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.linspace(-1, 1, 8))
        self.register_buffer("std", torch.linspace(0.5, 2, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x - self.mean) / self.std)


class Cosines(nn.Module):
    """An orthonormal cosine transform."""

    def __init__(self):
        super().__init__()
        basis = torch.cos(math.pi / 8 * (torch.arange(8) + 0.5) * torch.arange(8)[:, None]) / 2
        basis[0] /= math.sqrt(2)
        self.register_buffer("basis", basis)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x @ self.basis.T)


class Hann(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.window)


class Mixed(nn.Module):
    """A fixed order of the columns and fixed signs, both drawn with a seed."""

    def __init__(self):
        super().__init__()
        generator = np.random.RandomState(0)
        self.register_buffer("order", torch.from_numpy(generator.permutation(8)))
        self.register_buffer("signs", torch.from_numpy(generator.choice([-1.0, 1.0], 8)).to(torch.get_default_dtype()))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x[:, self.order] * self.signs)
