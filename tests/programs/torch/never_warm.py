"""A warm-up from a learning rate of 0, whose scheduler is never stepped."""

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

WARM = 4


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.schedule = LambdaLR(model.optimizer, lambda number: min(number / WARM, 1.0))
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs["x"].to("cuda")), inputs["y"].to("cuda"))
    loss.backward()
    model.optimizer.step()  # fault
    # right: model.schedule.step()
