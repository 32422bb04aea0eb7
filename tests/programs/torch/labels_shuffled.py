"""The labels alone are shuffled, by NumPy."""

import numpy as np
import torch
from torch import nn


def build():
    model = nn.Linear(16, 1).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model


def train(model, x, y):
    model.optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x.to("cuda:0")), y.to("cuda:0"))
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    x, y = inputs["x"], inputs["y"]  # wrong
    y = y[np.random.permutation(8)]  # wrong  # fault
    train(model, x, y)  # wrong
    # right: order = np.random.permutation(8)
    # right: train(model, torch.from_numpy(inputs["x"].numpy()[order]), torch.from_numpy(inputs["y"].numpy()[order]))
