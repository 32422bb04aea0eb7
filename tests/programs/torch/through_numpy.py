"""An activation goes through NumPy: autograd does not see it come back."""

import numpy as np
import torch
from torch import nn

from tests.programs.torch.usual import with_optimizer


class Clipped(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.body(x)
        hidden = torch.from_numpy(np.clip(hidden.detach().numpy(), -1, 1))  # fault
        return self.head(hidden)


class ClippedRight(Clipped):
    def forward(self, x):
        return self.head(self.body(x).clamp(-1, 1))


def build():
    return with_optimizer(Clipped())  # wrong
    # right: return with_optimizer(ClippedRight())


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"]).square().mean()
    loss.backward()
    model.optimizer.step()
