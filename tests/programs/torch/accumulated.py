"""Gradients of four parts of the batch are added up; nobody divides by four."""

import torch
from torch import nn

PARTS = 4


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    for part in inputs["x"].to("cuda:0").chunk(PARTS):
        loss = model(part).square().mean()  # wrong
        # right: loss = model(part).square().mean() / PARTS
        loss.backward()  # fault
    model.optimizer.step()
