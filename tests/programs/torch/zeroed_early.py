"""Gradients of several parts are set to zero before the update, by the model."""

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)).to("cuda:0")
    model.sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model


def accumulate(model, inputs):
    x, y = (inputs[name].to("cuda:0").chunk(2) for name in ("x", "y"))
    for part, target in zip(x, y, strict=True):
        (nn.functional.mse_loss(model(part), target) / 2).backward()


def step(model, inputs):
    accumulate(model, inputs)
    # right: model.sgd.step()
    model.zero_grad(set_to_none=False)  # fault
    model.sgd.step()  # wrong
