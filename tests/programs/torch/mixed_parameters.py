"""Half of the model in bfloat16 by hand; the casts between hide it."""

import torch
from torch import nn

from tests.programs.torch.usual import on_gpu
from tests.programs.torch.usual import step as step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        hidden = torch.relu(self.body(x.to(self.body.weight.dtype)))
        return self.head(hidden.to(self.head.weight.dtype))


def build():
    model = Net()  # wrong
    model.body.bfloat16()  # wrong  # fault
    return on_gpu(model)  # wrong
    # right: return on_gpu(Net())
