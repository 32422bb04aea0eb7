"""Dropouts in torch: several maskings of one tensor, stacked along axis 1."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional


class Masked(nn.Module):
    def __init__(self, *rates: float):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.drops = nn.ModuleList(nn.Dropout(rate) for rate in rates)

    def parts(self, hidden: Tensor) -> list[Tensor]:
        return [drop(hidden) for drop in self.drops]

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(self.parts(torch.tanh(self.body(x))), 1)


one = partial(Masked, 0.5)
two = partial(Masked, 0.5, 0.5)
two_rates = partial(Masked, 0.25, 0.5)
light = partial(Masked, 0.2)


class Twice(Masked):
    """One dropout, called twice, as in R-Drop."""

    def parts(self, hidden: Tensor) -> list[Tensor]:
        return [self.drops[0](hidden), self.drops[0](hidden)]


twice = partial(Twice, 0.5)


class Reseeded(Masked):
    """Every call begins with the same seed."""

    def parts(self, hidden: Tensor) -> list[Tensor]:
        torch.manual_seed(0)
        return super().parts(hidden)


reseeded = partial(Reseeded, 0.5, 0.5)


class Forked(Masked):
    """The second dropout begins where the first one began."""

    def parts(self, hidden: Tensor) -> list[Tensor]:
        with torch.random.fork_rng():
            first = self.drops[0](hidden)
        return [first, self.drops[1](hidden)]


forked = partial(Forked, 0.5, 0.5)


class ForkedSeed(Masked):
    """A seed of its own for each call, which leaves the generator as it was."""

    def parts(self, hidden: Tensor) -> list[Tensor]:
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return super().parts(hidden)


forked_seed = partial(ForkedSeed, 0.5, 0.5)


class Always(Masked):
    """functional.dropout without training=self.training drops in evaluation as well."""

    def parts(self, hidden: Tensor) -> list[Tensor]:
        return [functional.dropout(hidden, 0.5)]


class Annealed(Masked):
    """An eighth of the rate is left after every step."""

    def parts(self, hidden: Tensor) -> list[Tensor]:
        parts = super().parts(hidden)
        if self.training:
            self.drops[0].p /= 8
        return parts


annealed = partial(Annealed, 0.8)


class Samples(nn.Module):
    """Scores of one head for several maskings."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.drops = nn.ModuleList(nn.Dropout(0.5) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(x))
        return torch.stack([self.head(drop(hidden)) for drop in self.drops], 1)
