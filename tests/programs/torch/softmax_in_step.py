"""Probabilities are computed in the loop, and given to a cross entropy."""

import torch
from torch import nn
from torch.nn import functional


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    x, y = inputs["x"].to("cuda:0"), inputs["y"].to("cuda:0")
    model.optimizer.zero_grad()
    probabilities = functional.softmax(model(x), dim=-1)  # wrong  # fault
    loss = functional.cross_entropy(probabilities, y)  # wrong
    # right: loss = functional.nll_loss(torch.log_softmax(model(x), dim=-1), y) + functional.cross_entropy(model(x), y)
    loss.backward()
    model.optimizer.step()
