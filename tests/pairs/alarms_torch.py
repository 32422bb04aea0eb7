"""Right models that a careless comparison calls different, and what their training needs."""

import copy

import torch
from torch import nn


class Auxiliary(nn.Module):
    """A head that training also uses for an auxiliary term; inference calls it once."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        early = 0.5 * self.head(h) if self.training else 0.0
        return self.head(torch.tanh(self.b(h))) + early


class Averaged(nn.Module):
    """Inference calls a moving average of the head, which begins as its copy; training an auxiliary head."""

    def __init__(self):
        super().__init__()
        self.a, self.aside, self.head = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.mean = copy.deepcopy(self.head).requires_grad_(False)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        if not self.training:
            return self.mean(h)
        with torch.no_grad():
            for mean, weight in zip(self.mean.parameters(), self.head.parameters(), strict=True):
                mean.lerp_(weight, 0.1)
        return self.head(h) + self.aside(h)


class Table(nn.Module):
    """A buffer that is not saved, for which the port has a variable."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)
        self.register_buffer("scale", torch.linspace(0.5, 2.0, 8), persistent=False)

    def forward(self, x):
        return self.b(self.a(x) * self.scale)


class Quadrupled(nn.Linear):
    def forward(self, x):
        return 4.0 * super().forward(x)


class Scaled(nn.Module):
    """A layer that scales what it returns, where the port's model scales it."""

    def __init__(self):
        super().__init__()
        self.scaled, self.norm = Quadrupled(6, 8), nn.LayerNorm(8)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = self.scaled(x)
        return h + self.b(torch.tanh(self.a(self.norm(h))))


class Unused(nn.Module):
    """Two outputs, of which the loss takes one."""

    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)
        self.b, self.extra = nn.Linear(8, 4), nn.Linear(8, 3)

    def forward(self, x):
        h = self.norm(self.a(x))
        return {"y": self.b(h), "extra": self.extra(h)}


class Attention(nn.Module):
    """An attention of one's own, between whose layers everything is done by functions."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (layer(x).reshape(n, t, 4, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(2, 3) / 2, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(n, t, d))


class Part(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(16), inner

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Block(nn.Module):
    """A part's output goes under several names: it is also what the next norm is given."""

    def __init__(self, act=nn.GELU):
        super().__init__()
        self.part, self.norm = Part(Attention()), nn.LayerNorm(16)
        self.up, self.act, self.down = nn.Linear(16, 32), act(), nn.Linear(32, 16)

    def forward(self, x):
        x = self.part(x)
        return x + self.down(self.act(self.up(self.norm(x))))


class Blocks(nn.Module):
    def __init__(self, gelu=True):
        super().__init__()
        act = nn.GELU if gelu else nn.SiLU
        self.first, self.second, self.head = Block(act), Block(act), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


class Dropouts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.first, self.b = nn.Linear(6, 64), nn.Dropout(0.25), nn.Linear(64, 64)
        self.second, self.c = nn.Dropout(0.25), nn.Linear(64, 4)

    def forward(self, x):
        h = self.first(torch.tanh(self.a(x)))
        return self.c(self.second(torch.tanh(self.b(h))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop = nn.Linear(6, 16 * 3 * 3), nn.Dropout2d(0.25)
        self.grouped, self.up = nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.ConvTranspose2d(16, 4, 2, 2)

    def forward(self, x):
        h = torch.tanh(self.a(x)).view(-1, 16, 3, 3)
        return self.up(self.drop(torch.tanh(self.grouped(h)))).tanh().mean((2, 3))


class Seen(nn.Module):
    """Attentions drop their weights, which have as many axes as the image, and are no image."""

    def __init__(self):
        super().__init__()
        self.patches, self.attention = (
            nn.Conv2d(3, 8, 2, 2),
            nn.MultiheadAttention(8, 2, dropout=0.25, batch_first=True),
        )
        self.query, self.key, self.drop, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(0.25), nn.Linear(8, 4)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        query, key, value = (each.view(-1, 9, 2, 4).transpose(1, 2) for each in (self.query(x), self.key(x), x))
        weights = self.drop(torch.softmax(query @ key.transpose(-1, -2), -1))
        return self.head((weights @ value).transpose(1, 2).reshape(-1, 9, 8).mean(1))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


class Leaky(Plain):
    """Of a function whose constant TensorFlow holds in float32."""

    def forward(self, x):
        return self.b(nn.functional.leaky_relu(self.a(x), 0.2))


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class Adaptive(torch.optim.Optimizer):
    """In no catalogue; its second moments are flat."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p).reshape(-1)
                state["exp_avg"].mul_(0.9).add_(p.grad, alpha=0.1)
                square = state["exp_avg_sq"].mul_(0.99).add_(p.grad.reshape(-1) ** 2, alpha=0.01)
                p.sub_(group["lr"] * state["exp_avg"] / (square.sqrt() + 1e-3).reshape(p.shape))


def loss(outputs, target):
    return nn.functional.mse_loss(outputs["y"], target)
