"""A parameter that comes from NumPy, and is float64 as NumPy's numbers are."""

import numpy as np
import torch
from torch import nn

from tests.programs.torch.usual import on_gpu
from tests.programs.torch.usual import step as step


class Prior(nn.Module):
    def __init__(self, prior):
        super().__init__()
        self.hidden = nn.Linear(16, 8)
        self.prior = nn.Parameter(prior)  # fault
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.hidden(x) + self.prior)


def build():
    prior = torch.from_numpy(np.linspace(-1, 1, 8))  # wrong
    # right: prior = torch.from_numpy(np.linspace(-1, 1, 8, dtype=np.float32))
    return on_gpu(Prior(prior))
