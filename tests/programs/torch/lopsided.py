"""A model cut in two at the wrong layer: one device holds nine tenths of it."""

import torch
from torch import nn


class Pipeline(nn.Module):
    def __init__(self, cut):
        super().__init__()
        layers = [nn.Linear(64, 64) for _ in range(10)]
        self.first = nn.Sequential(*layers[:cut]).to("cuda:0")
        self.second = nn.Sequential(*layers[cut:]).to("cuda:1")  # fault

    def forward(self, x):
        return self.second(self.first(x.to("cuda:0")).to("cuda:1"))


def build(cut=1):
    model = Pipeline(cut)
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build_right():
    return build(cut=5)


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"]).square().mean()
    loss.backward()
    model.optimizer.step()
