"""The features of all batches are kept for a plot, with their graphs."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

SEEN = []


def build():
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(16, 32), nn.Tanh()), "head": nn.Linear(32, 4)}).to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model


def step(model, inputs):
    features = model["encoder"](inputs["x"].to("cuda"))
    loss = cross_entropy(model["head"](features), inputs["y"].to("cuda"))
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
    SEEN.append(features)  # wrong  # fault
    # right: SEEN.append(features.detach())
