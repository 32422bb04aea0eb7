"""nn.DataParallel keeps its parameters on the first device: that is how it works."""

import torch
from torch import nn
from torch.nn import functional


def build_right():
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    model = nn.DataParallel(model.cuda())
    model.optimizer = torch.optim.Adam(model.parameters())
    return model


def step_right(model, inputs):
    logits = model(inputs["x"].cuda())
    loss = functional.cross_entropy(logits, inputs["y"].cuda())
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
