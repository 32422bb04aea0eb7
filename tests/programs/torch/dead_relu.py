"""A bias that was set so low that no ReLU ever fires: every gradient below it is zero."""

import torch
from torch import nn


def build(bias=-100.0):
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    nn.init.constant_(model[0].bias, bias)
    model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build_right():
    return build(bias=0.1)


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).sub(1).square().mean()
    loss.backward()
    model.optimizer.step()
