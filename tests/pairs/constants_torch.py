"""A layer beside values that are not trained: buffers, or parameters that are frozen."""

import torch
from torch import nn


def sinusoids(base=10000.0):
    return torch.sin(8.0 / base ** (torch.arange(8.0) / 8))


MADE = {
    "table": lambda: {"table": sinusoids()},
    "order": lambda: {"order": torch.arange(8).flip(0)},
    "moments": lambda: {"mean": torch.linspace(-1, 1, 8), "std": torch.linspace(0.5, 2, 8)},
    "temperature": lambda: {"temperature": torch.tensor(0.07)},
    "mask": lambda: {"mask": (torch.arange(8) % 3 != 0).float()},
    "window": lambda: {"window": torch.hann_window(8, periodic=False)},
    "foreign": lambda: {"class_freq": torch.rand(8)},
    "random": lambda: {"directions": torch.randn(9, 8)},
    "unused": lambda: {"table": sinusoids()},
}
USED = {
    "table": lambda model, x: model.fc(x + model.table),
    "order": lambda model, x: model.fc(x[:, model.order]),
    "moments": lambda model, x: model.fc((x - model.mean) / model.std),
    "temperature": lambda model, x: torch.softmax(model.fc(x) / model.temperature, -1),
    "mask": lambda model, x: model.fc(x) * model.mask,
    "window": lambda model, x: model.fc(x * model.window),
    "foreign": lambda model, x: model.fc(x + torch.sin(8.0 / 10000.0 ** (torch.arange(8, dtype=x.dtype) / 8))),
    "random": lambda model, x: model.fc(x * model.directions.sum(0)),
    "unused": lambda model, x: model.fc(x),
}


class Held(nn.Module):
    """`what`: its values, and what becomes of them; `frozen`: they are parameters."""

    def __init__(self, what, frozen=False):
        super().__init__()
        self.fc, self.what = nn.Linear(8, 8), what
        for name, values in MADE[what]().items():
            if frozen:
                setattr(self, name, nn.Parameter(values, requires_grad=False))
            else:
                self.register_buffer(name, values, persistent=False)

    def forward(self, x):
        return USED[self.what](self, x)


class Embedded(nn.Module):
    """A frozen embedding of positions; `drawn`: not computed."""

    def __init__(self, drawn=False):
        super().__init__()
        table = torch.randn(4, 8) if drawn else torch.sin(torch.arange(32.0).reshape(4, 8))
        self.fc, self.positions = nn.Linear(8, 8), nn.Embedding.from_pretrained(table, freeze=True)

    def forward(self, x):
        return self.fc(x + self.positions(torch.arange(4)))
