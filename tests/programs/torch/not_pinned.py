"""A large batch that goes to the GPU from pageable memory."""

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(1024, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model


def train(model, x):
    model.optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    x = inputs["x"].to("cuda:0", non_blocking=True)  # wrong  # fault
    # right: x = inputs["x"].pin_memory().to("cuda:0", non_blocking=True)
    train(model, x)
