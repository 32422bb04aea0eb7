"""The gradients are cleared between the backward pass and the update."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x))


def build():
    model = Tagger().to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.criterion = nn.CrossEntropyLoss()
    return model


def step(model, inputs):
    loss = model.criterion(model(inputs["x"].to("cuda")), inputs["y"].to("cuda"))
    loss.backward()
    model.optimizer.zero_grad()  # wrong  # fault
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    model.optimizer.step()
    # right: model.optimizer.zero_grad()
