"""The layers of chains in torch; keras_layers.py has the same names."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "linear": lambda inside, outside, bias=1: nn.Linear(inside, outside, bias=bool(bias)),
    "conv": lambda i, o, k, stride=1, pad=0, groups=1, dilation=1: nn.Conv2d(i, o, k, stride, pad, dilation, groups),
    "conv1d": lambda i, o, k, pad=0: nn.Conv1d(i, o, k, padding=pad),
    "layer_norm": lambda width, eps=1e-5: nn.LayerNorm(width, eps),
    "rms_norm": lambda width, eps=1e-6: nn.RMSNorm(width, eps),
    "batch_norm": lambda width, eps=1e-5, momentum=0.1: nn.BatchNorm1d(width, eps, momentum),
    "batch_norm2d": lambda width, eps=1e-5, momentum=0.1: nn.BatchNorm2d(width, eps, momentum),
    "group_norm": lambda groups, width, eps=1e-5: nn.GroupNorm(groups, width, eps),
    "embedding": lambda count, width: nn.Embedding(count, width),
    "padded_embedding": lambda count, width, pad: nn.Embedding(count, width, padding_idx=pad),
    "dropout": lambda rate: nn.Dropout(rate),
    "prelu": lambda width: nn.PReLU(width),
    "unused": lambda inside, outside: Unused(inside, outside),
    "constant": lambda *shape: Constant(shape),
    "positions": lambda length, width, buffer=0, shift=0: Positions(length, width, bool(buffer), shift),
    "running": lambda width, rate=0.1: Running(width, rate),
    "counter": lambda: Counter(),
}


class Unused(nn.Module):
    """A layer that nothing calls."""

    def __init__(self, inside: int, outside: int):
        super().__init__()
        self.pooler = nn.Linear(inside, outside)

    def forward(self, x: Tensor) -> Tensor:
        return x


class Constant(nn.Module):
    """Adds a parameter."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class Positions(nn.Module):
    """Adds the sinusoids of positions, as a non-persistent buffer or made at each call."""

    def __init__(self, length: int, width: int, buffer: bool, shift: int):
        super().__init__()
        self.register_buffer("table", sinusoids(length, width, shift) if buffer else None, persistent=False)
        self.size, self.shift = (length, width), shift

    def forward(self, x: Tensor) -> Tensor:
        table = sinusoids(*self.size, self.shift) if self.table is None else self.table
        return x + table.to(x.dtype)


def sinusoids(length: int, width: int, shift: int) -> Tensor:
    place = torch.arange(length, dtype=torch.float64)[:, None] + shift
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    return torch.cat([torch.sin(place * rate), torch.cos(place * rate)], -1).to(torch.get_default_dtype())


class Running(nn.Module):
    """Subtracts a running mean of its inputs that training moves."""

    def __init__(self, width: int, rate: float):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(width))
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.running_mean.mul_(1 - self.rate).add_(self.rate * x.mean(0))
        return x - self.running_mean


class Counter(nn.Module):
    """Counts its calls in training, as a float, and tells nobody."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.full((1,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return x
