"""Predictions are copied to the host without waiting, and read at once."""

import torch
from torch import nn
from torch.nn import functional


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.seen = []
    return model


def train(model, inputs):
    logits = model(inputs["x"].to("cuda"))
    loss = functional.cross_entropy(logits, inputs["y"].to("cuda"))
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
    return logits.detach()


def step(model, inputs):
    logits = train(model, inputs)
    scores = logits.to("cpu", non_blocking=True)  # fault
    # right: torch.cuda.synchronize()
    model.seen.append(scores.numpy())
