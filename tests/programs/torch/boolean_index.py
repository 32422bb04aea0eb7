"""Padding is taken out by a boolean index: the host has to know how many are left."""

import torch
from torch import nn
from torch.nn import functional


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.out = nn.Linear(16, 6)

    def forward(self, ids):
        return self.out(self.table(ids))


def build():
    model = Tagger().to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    ids, tags = inputs["ids"].to("cuda:0"), inputs["tags"].to("cuda:0")
    logits = model(ids)
    loss = functional.cross_entropy(logits[ids != 0], tags[ids != 0])  # wrong  # fault
    # right: tags = tags.masked_fill(ids == 0, -100)
    # right: loss = functional.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
    loss.backward()
    model.optimizer.step()
