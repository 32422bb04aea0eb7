"""A loss of predicted classes, which have no gradients."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    # right: """With an accuracy beside the loss."""
    y = inputs["y"].to("cuda:0")
    model.optimizer.zero_grad()
    scores = model(inputs["x"].to("cuda:0"))
    predicted = scores.argmax(1).float()  # wrong
    loss = nn.functional.mse_loss(predicted, y.float())  # wrong  # fault
    loss.requires_grad_()  # wrong
    # right: model.accuracy = (scores.argmax(1) == y).float().mean()
    # right: loss = nn.functional.cross_entropy(scores, y)
    loss.backward()
    model.optimizer.step()
