"""The scheduler steps before the optimizer: the first learning rate is never used."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warm = torch.optim.lr_scheduler.LinearLR(model.optimizer, 0.5, total_iters=2)
    cool = torch.optim.lr_scheduler.CosineAnnealingLR(model.optimizer, 100)
    model.scheduler = torch.optim.lr_scheduler.SequentialLR(model.optimizer, [warm, cool], [2])
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    # right: model.optimizer.step()
    model.scheduler.step()  # fault
    model.optimizer.step()  # wrong
