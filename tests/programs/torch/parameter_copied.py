"""Tied embeddings over two devices: the table goes to the other device in every step."""

import torch
from torch import nn
from torch.nn import functional

from tests.programs.torch.usual import with_optimizer


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16).to("cuda:0")
        self.body = nn.Linear(16, 16).to("cuda:1")

    def forward(self, ids):
        hidden = torch.tanh(self.body(self.table(ids).to("cuda:1")))
        table = self.table.weight.to("cuda:1")  # fault
        return functional.linear(hidden, table).to("cuda:0")


class LanguageRight(Language):
    def forward(self, ids):
        hidden = torch.tanh(self.body(self.table(ids).to("cuda:1")))
        return functional.linear(hidden.to("cuda:0"), self.table.weight)


def build():
    return with_optimizer(Language())  # wrong
    # right: return with_optimizer(LanguageRight())


def step(model, inputs):
    model.optimizer.zero_grad()
    ids = inputs["ids"].to("cuda:0")
    loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    model.optimizer.step()
