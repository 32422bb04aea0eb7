"""The batch goes to the default GPU; the model was put on another one."""

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda:1")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, x):
    model.optimizer.zero_grad()
    loss = model(x).square().mean()  # fault
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    train(model, inputs["x"].cuda())  # wrong
    # right: train(model, inputs["x"].to("cuda:1"))
