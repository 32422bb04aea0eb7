"""The features are computed under no_grad, though they shall be trained too."""

import torch
from torch import nn

from tests.programs.torch.usual import on_gpu
from tests.programs.torch.usual import step as step


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        with torch.no_grad():
            hidden = self.features(x)  # fault
        return self.head(hidden)


class TunedRight(Tuned):
    def forward(self, x):
        return self.head(self.features(x))


def build():
    return on_gpu(Tuned())  # wrong
    # right: return on_gpu(TunedRight())
