"""Models within models."""

from torch import nn


def tower(inside: int, outside: int, slope: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, 14), nn.LeakyReLU(slope), nn.Linear(14, outside), nn.LeakyReLU(slope))


class Stack(nn.Module):
    def __init__(self, slope: float):
        super().__init__()
        self.towers = nn.ModuleList([tower(9, 11, slope), tower(11, 11, slope)])
        self.bottleneck = nn.Linear(11, 7)

    def forward(self, x):
        for part in self.towers:
            x = part(x)
        return self.bottleneck(x)


def build(slope: float = 0.125) -> nn.Module:
    return nn.Sequential(Stack(slope), nn.Softplus(), nn.Linear(7, 3))
