"""A logarithm of what a ReLU made: of zeros."""

import torch
from torch import nn


class Rates(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 8)

    def forward(self, x):
        return torch.log(torch.relu(self.out(x)))  # fault


class RatesRight(Rates):
    def forward(self, x):
        return torch.log(torch.relu(self.out(x)) + 1e-3)


def on_gpu(model):
    model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return model


def build():
    return on_gpu(Rates())  # wrong
    # right: return on_gpu(RatesRight())


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).mean()
    loss.backward()
    model.optimizer.step()
