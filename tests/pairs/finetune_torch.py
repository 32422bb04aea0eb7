"""A frozen body under a new head."""

from torch import nn


def build() -> nn.Module:
    body = nn.Sequential(nn.Linear(10, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh())
    body.requires_grad_(False)
    return nn.Sequential(body, nn.Linear(12, 3))
