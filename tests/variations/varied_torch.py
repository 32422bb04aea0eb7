"""The torch halves of tests/test_variations.py."""

import torch
from torch import nn


def _between(*middle):
    return nn.Sequential(nn.Linear(6, 5), *middle, nn.Linear(5, 3))


def clamped():
    return _between(nn.ReLU6())


class Edges(nn.Module):
    """NaN at zeros, beyond float32 at large values, and a clamp that no value reaches."""

    def forward(self, x):
        shares = x / x.abs().sum(-1, keepdim=True)
        return torch.clamp(shares, max=1e9) + torch.exp(x * 2)


def edges():
    return nn.Sequential(Edges(), nn.Linear(6, 3))


def shrunk():
    return _between(nn.Softshrink(2.0))


class Normalized(nn.Module):
    def forward(self, x):
        return nn.functional.normalize(x, dim=-1)


def normalized():
    return nn.Sequential(Normalized(), nn.Linear(6, 3))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x, keep):
        return self.fc(x.masked_fill(~keep, 0.5))


def masked():
    return Masked()


class Pooled(nn.Module):
    """The mean of the embeddings of all ids but 0."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6, padding_idx=0)
        self.fc = nn.Linear(6, 3)

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1)
        x = self.embed(ids) * mask
        return self.fc(x.sum(1) / mask.sum(1).clamp(min=1))


def padded():
    return Pooled()


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)

    def forward(self, x):
        return self.fc(x).squeeze(-1)


def squeezed():
    return Squeezed()


def fixed():
    return _between(nn.Tanh())


def counting():
    return nn.Linear(6, 3)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(20, 6), nn.Embedding(32, 6)

    def forward(self, ids):
        return torch.tanh(self.embed(ids) + self.places(torch.arange(ids.shape[1])))


def positions():
    return Positions()


def dropping():
    return _between(nn.Dropout(0.25))


def dropping_twice():
    return _between(nn.Dropout(0.25), nn.Tanh(), nn.Dropout(0.5))


class Channels(nn.Module):
    """Drops whole channels of an image of one pixel."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout2d(0.25)

    def forward(self, x):
        return self.drop(x[:, :, None, None])[:, :, 0, 0]


def alpha():
    return _between(nn.AlphaDropout(0.25))


def channels():
    return _between(Channels())


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, ids):
        return self.fc(self.embed(ids).mean(1))


def last():
    return Last()


def batch_norm():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=0.5), nn.Linear(5, 3))


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x


def noisy():
    return _between(Noise())


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)
        self.some, self.more = nn.Dropout(0.25), nn.Dropout(0.5)

    def forward(self, x):
        return self.some(self.left(x)) - self.more(self.right(x))


def two_branches():
    return TwoBranches()


class Limited(nn.Module):
    def forward(self, x):
        if x.abs().max() > 50:
            raise ValueError("too large")
        return torch.tanh(x)


def limited():
    return _between(Limited())


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0) if self.training else x


def centred():
    return nn.Sequential(nn.Linear(6, 4), Centred(), nn.Linear(4, 3))


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.out = nn.Embedding(20, 4, padding_idx=0), nn.Linear(4, 3)

    def forward(self, ids):
        return self.out(torch.tanh(self.rows(ids)).sum(1))


rows = Rows
