"""A sigmoid in forward, and a loss that computes one."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return torch.sigmoid(self.out(x))  # fault


class NetRight(Net):
    def forward(self, x):
        return self.out(x)


def build():
    return on_gpu(Net())  # wrong
    # right: return on_gpu(NetRight())


def on_gpu(model):
    model.to("cuda:0").optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    x, y = inputs["x"].to("cuda:0"), (inputs["y"] > 0).float().to("cuda:0")
    model.optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    loss.backward()
    model.optimizer.step()
