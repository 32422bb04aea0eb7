"""The logarithm of the softmax is taken over the batch."""

import torch
from torch import nn
from torch.nn.functional import log_softmax, nll_loss


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model


def update(model, loss):
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    scores = model(inputs["x"].to("cuda"))
    chances = log_softmax(scores, dim=0)  # wrong  # fault
    # right: chances = log_softmax(scores, dim=1)
    update(model, nll_loss(chances, inputs["y"].to("cuda")))
