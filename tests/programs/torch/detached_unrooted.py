"""The outputs are detached, and the backward pass fails for want of a graph."""

import torch

from tests.programs.torch.usual import build as build


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = torch.mean(model(inputs["x"].to("cuda:0")).data ** 2)  # wrong  # fault
    # right: loss = torch.mean(model(inputs["x"].to("cuda:0")) ** 2)
    loss.backward()
    model.optimizer.step()
