"""Features that are kept without their graph; the last ones, and the first ones, with it."""

import collections

import torch
from torch import nn
from torch.nn.functional import cross_entropy


def build_right():
    model = nn.ModuleDict({"encoder": nn.Linear(16, 32), "head": nn.Linear(32, 4)}).to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.replay, model.seen, model.first = collections.deque(maxlen=100), {}, None
    return model


def step_right(model, inputs):
    features = model["encoder"](inputs["x"].to("cuda")).tanh()
    logits = model["head"](features)
    loss = cross_entropy(logits, inputs["y"].to("cuda"))
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
    model.replay.append(features.detach())
    model.seen[len(model.seen)] = logits.detach().argmax(1)
    model.last = features
    if model.first is None:
        model.first = logits
