"""The outputs are detached, and the backward pass fails for want of a graph."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = torch.mean(model(inputs["x"].to("cuda:0")).data ** 2)  # wrong  # fault
    # right: loss = torch.mean(model(inputs["x"].to("cuda:0")) ** 2)
    loss.backward()
    model.optimizer.step()
