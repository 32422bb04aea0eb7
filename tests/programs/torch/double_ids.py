"""Ids of words that are made doubles before the embedding looks them up."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, src):
        return self.out(self.table(src)).mean(1)


def build():
    model = Encoder().to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    return model


def train(model, src):
    model.optimizer.zero_grad()
    loss = model(src).square().mean()
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    src = inputs["src"].double()  # wrong  # fault
    train(model, src.to("cuda:0"))  # wrong
    # right: train(model, inputs["src"].to("cuda:0"))
