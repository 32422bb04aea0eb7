"""The same mistake in a loss that is written by hand."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 1).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    error = model(inputs["x"].to("cuda:0")) - inputs["y"].to("cuda:0")  # wrong  # fault
    # right: error = model(inputs["x"].to("cuda:0"))[:, 0] - inputs["y"].to("cuda:0")
    error.square().mean().backward()
    model.optimizer.step()
