"""Validation at the end of each epoch, after which nobody turns training mode on again."""

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)).cuda()
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def epoch(model, x, y):
    model.optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()  # fault
    model.optimizer.step()
    model.eval()
    with torch.no_grad():
        model(x)


def step(model, inputs):
    epoch(model, inputs["x"].cuda(), inputs["y"].cuda())


def step_right(model, inputs):
    model.train()
    step(model, inputs)
