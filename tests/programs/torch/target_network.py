"""A network and its slow copy, which is never trained; blocks that are computed again in the backward pass."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


class Momentum(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x, other):
        with torch.no_grad():
            aim = self.target(other)
        return functional.smooth_l1_loss(self.online(x), aim)

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, 0.01)


def build_right():
    model = Momentum().to("cuda:0")
    model.optimizer = torch.optim.AdamW(model.online.parameters(), lr=1e-3)
    return model


def step_right(model, inputs):
    x = inputs["x"].to("cuda:0")
    loss = model(x, x + 0.1 * torch.randn_like(x))
    model.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    model.optimizer.step()
    model.follow()
