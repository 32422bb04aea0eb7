"""A loop that never clears its gradients: each step adds to those of all steps before."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model


def step(model, inputs):
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()  # fault
    model.optimizer.step()


def step_right(model, inputs):
    model.optimizer.zero_grad()
    step(model, inputs)
