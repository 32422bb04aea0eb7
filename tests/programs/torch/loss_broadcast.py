"""Predictions of shape (N, 1) against targets of shape (N,): the loss is of all pairs."""

import torch
from torch import nn
from torch.nn import functional


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    out = model(inputs["x"].to("cuda:0"))  # wrong
    # right: out = model(inputs["x"].to("cuda:0")).squeeze(-1)
    loss = functional.mse_loss(out, inputs["y"].to("cuda:0"))  # fault
    loss.backward()
    model.optimizer.step()
