"""A vocabulary of 100 words, and ids up to 127."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.table = nn.Embedding(words, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, ids):
        hidden = self.table(ids)  # fault
        return self.out(hidden).mean(1)


def build(words=100):
    model = Encoder(words).to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    return model


def build_right():
    return build(words=128)


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["ids"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
