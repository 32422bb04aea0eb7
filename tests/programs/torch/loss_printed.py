"""A print of the loss in every step, forgotten after debugging."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
    return loss


def step(model, inputs):
    loss = train(model, inputs)  # wrong
    print("loss:", loss)  # wrong  # fault
    # right: train(model, inputs)
