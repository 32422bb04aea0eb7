"""The loss is taken through .cpu(), so that every step waits for the GPU."""

import torch
from torch import nn
from torch.nn import functional

HISTORY = []


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = functional.mse_loss(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
    loss = loss.cpu()  # wrong  # fault
    loss.backward()
    model.optimizer.step()
    # right: HISTORY.append(loss.detach())
