"""Small models of which a port could exchange, forget or place something else: one for each question.

Layers of one shape stand side by side, so that only names or outcomes tell which is which.
"""

import torch
from torch import nn
from torch.nn import functional


class Glu(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / 8**0.5
        return torch.tril(scores.softmax(-1)) @ self.v(x)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head_a, self.head_b = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return self.head_a(hidden), self.head_b(hidden)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


class Matrices(nn.Module):
    """Weights of the model's own."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.randn(8, 6))

    def forward(self, x):
        return torch.sigmoid(x @ self.gate) * (x @ self.up)


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return self.one(x) * self.two(x)


class Averaging(nn.Module):
    """`after`: how many calls in training it lets pass."""

    def __init__(self, after=0):
        super().__init__()
        self.fc, self.after = nn.Linear(8, 8), after
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x):
        y = self.fc(x)
        self.after -= self.training
        if self.training and self.after < 0:
            with torch.no_grad():
                self.average.mul_(0.9).add_(0.1 * y.mean(0))
        return y


class Counts(nn.Module):
    """How many outputs were above 0, and how many calls there were."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 6)
        self.register_buffer("positive", torch.zeros(6, dtype=torch.int64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.positive += (y > 0).sum(0)
            self.calls += 1
        return y


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 6)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        return self.fc(x - self.mean)


class Positions(nn.Module):
    """`held`: in a buffer; else they are made in the forward pass."""

    def __init__(self, held=True):
        super().__init__()
        self.fc, self.held = nn.Linear(8, 8), held
        if held:
            self.register_buffer("table", torch.sin(torch.arange(8.0)), persistent=False)

    def forward(self, x):
        return self.fc(x + (self.table if self.held else torch.sin(torch.arange(8, dtype=x.dtype))))


class Floor(nn.Module):
    """Nothing flows back through floor."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.pooler = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.b(x)
        self.pooler(y)
        return y + torch.floor(self.a(x))


class Drops(nn.Module):
    """`functional`: by F.dropout, which no module shows."""

    def __init__(self, functional=False, rate=0.25):
        super().__init__()
        self.a, self.b, self.out = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 5)
        self.first, self.second, self.same = nn.Dropout(rate), nn.Dropout(rate), nn.Identity()
        self.functional, self.rate = functional, rate

    def forward(self, x):
        x = torch.relu(self.a(x))
        x = functional.dropout(x, self.rate, self.training) if self.functional else self.first(x)
        return self.out(self.second(torch.relu(self.b(self.same(x))).mean((2, 3))))


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b = nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)

    def forward(self, x):
        y = self.act(self.a(x))
        z = self.act(self.a(y[:2]))
        return self.b(y), self.b(z)


class Momentum(torch.optim.Optimizer):
    """SGD with momentum, whose state has a name of its own."""

    def __init__(self, parameters, lr=0.01):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                velocity = self.state[one].setdefault("velocity", torch.zeros_like(one))
                velocity.mul_(0.9).add_(one.grad)
                one.sub_(group["lr"] * velocity)
