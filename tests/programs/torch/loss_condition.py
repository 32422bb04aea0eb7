"""An `if` on the loss: Python has to wait for the GPU to know which way to go."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    if loss > 100:  # wrong  # fault
        loss = loss / loss.detach()  # wrong
    # right: loss = torch.where(loss > 100, loss / loss.detach(), loss)
    loss.backward()
    model.optimizer.step()
