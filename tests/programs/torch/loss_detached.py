"""The loss is made of outputs without their graph, and made to need a gradient afterwards."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    outputs = model(inputs["x"].to("cuda:0")).detach()  # wrong  # fault
    loss = outputs.square().mean()  # wrong
    loss.requires_grad_()  # wrong
    # right: loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
