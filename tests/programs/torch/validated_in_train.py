"""A validation that forgets eval(): dropout drops, and batch norm learns from the validation data."""

import torch
from torch import nn
from torch.nn import functional


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    return model.to("cuda:0")


def step(model, inputs):
    # right: model.eval()
    with torch.no_grad():
        out = model(inputs["x"].to("cuda:0"))  # fault
        functional.mse_loss(out, inputs["y"].to("cuda:0"))
