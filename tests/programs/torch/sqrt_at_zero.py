"""The distance of a point to itself: its value is finite, its derivative is not."""

import torch
from torch import nn


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 8, bias=False)

    def forward(self, x):
        points = self.out(x)
        squares = (points - points[:1]).square().sum(-1)
        return torch.sqrt(squares)  # fault


class DistanceRight(Distance):
    def forward(self, x):
        points = self.out(x)
        squares = (points - points[:1]).square().sum(-1)
        return torch.sqrt(squares + 1e-6)


def on_gpu(model):
    model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model


def build():
    return on_gpu(Distance())  # wrong
    # right: return on_gpu(DistanceRight())


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).mean()
    loss.backward()
    model.optimizer.step()
