"""A loop without optimizer.step(): gradients are computed and thrown away."""

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
    loss.backward()  # fault


def step_right(model, inputs):
    step(model, inputs)
    model.optimizer.step()
