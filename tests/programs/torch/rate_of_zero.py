"""An optimizer that is made with a learning rate of 0."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # wrong  # fault
    # right: model.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda:0")).square().mean().backward()
    model.optimizer.step()
