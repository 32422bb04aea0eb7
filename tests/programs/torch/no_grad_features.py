"""The features are computed under no_grad, though they shall be trained too."""

import torch
from torch import nn


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        with torch.no_grad():
            hidden = self.features(x)  # fault
        return self.head(hidden)


class TunedRight(Tuned):
    def forward(self, x):
        return self.head(self.features(x))


def on_gpu(model):
    model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    return on_gpu(Tuned())  # wrong
    # right: return on_gpu(TunedRight())


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
