"""A loss of predicted classes, which have no gradients."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    y = inputs["y"].to("cuda:0")
    model.optimizer.zero_grad()
    scores = model(inputs["x"].to("cuda:0"))
    predicted = scores.argmax(1).float()
    loss = nn.functional.mse_loss(predicted, y.float())  # fault
    loss.requires_grad_()
    loss.backward()
    model.optimizer.step()


def step_right(model, inputs):
    """With an accuracy beside the loss."""
    y = inputs["y"].to("cuda:0")
    model.optimizer.zero_grad()
    scores = model(inputs["x"].to("cuda:0"))
    model.accuracy = (scores.argmax(1) == y).float().mean()
    loss = nn.functional.cross_entropy(scores, y)
    loss.backward()
    model.optimizer.step()
