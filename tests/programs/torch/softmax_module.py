"""A model that ends with a softmax over the batch, and a loss of its probabilities."""

import torch
from torch import nn


def with_optimizer(model):
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model.to("cuda:0")


def build():
    last = nn.Softmax(0)  # wrong  # fault
    # right: last = nn.Softmax(1)
    return with_optimizer(nn.Sequential(nn.Linear(16, 4), last))


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
    loss.backward()
    model.optimizer.step()
