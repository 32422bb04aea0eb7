"""A bank of features grows by those of each batch, with the graph of all batches before."""

import torch
from torch import nn


class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(16, 8)
        self.register_buffer("bank", torch.zeros(1, 8))

    def forward(self, x):
        features = self.encoder(x).tanh()
        distances = torch.cdist(features, self.bank.detach())
        self.bank = torch.cat([self.bank, features])  # fault
        return distances


class BankRight(Bank):
    def forward(self, x):
        features = self.encoder(x).tanh()
        distances = torch.cdist(features, self.bank.detach())
        self.bank = torch.cat([self.bank, features]).detach()
        return distances


def optimized(model):
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    return optimized(Bank().to("cuda"))  # wrong
    # right: return optimized(BankRight().to("cuda"))


def step(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda")).mean().backward()
    model.optimizer.step()
