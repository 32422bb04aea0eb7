"""A residual block that adds in place: after the ReLU it breaks autograd, after the convolution it does not."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        out = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        out += x  # fault
        return out


class BlockRight(Block):
    def forward(self, x):
        out = self.conv2(torch.relu(self.conv1(x)))
        out += x
        return torch.relu(out)


def on_gpu(block):
    model = nn.Sequential(block, nn.Flatten(), nn.Linear(4 * 8 * 8, 3)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    return on_gpu(Block())  # wrong
    # right: return on_gpu(BlockRight())
