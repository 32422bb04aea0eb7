"""A batch that was made float64 on its way to a float32 model."""

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, x):
    model.optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    x = inputs["x"].double()  # wrong  # fault
    train(model, x.to("cuda:0"))  # wrong
    # right: train(model, inputs["x"].to("cuda:0"))
