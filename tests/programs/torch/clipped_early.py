"""Gradients are clipped before the backward pass makes them."""

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    # right: loss.backward()
    clip_grad_norm_(model.parameters(), 1.0)  # fault
    loss.backward()  # wrong
    model.optimizer.step()
