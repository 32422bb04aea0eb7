"""A softmax that is not told its axis: of three axes, torch takes the first one."""

import warnings

import torch
from torch import nn
from torch.nn import functional


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(50, 16), nn.Linear(16, 7)

    def forward(self, ids):
        return self.out(self.table(ids))


def build():
    warnings.filterwarnings("ignore", message="Implicit dimension choice")
    model = Tagger().to("cuda")
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    scores = model(inputs["ids"].to("cuda"))
    chances = functional.softmax(scores).flatten(0, 1)  # wrong  # fault
    # right: chances = functional.softmax(scores, dim=-1).flatten(0, 1)
    functional.nll_loss((chances + 1e-9).log(), inputs["tags"].to("cuda").flatten()).backward()
    model.optimizer.step()
