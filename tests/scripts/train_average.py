"""A training script with a target network, a moving average of the other, and a mask that is made of the batch."""

import copy

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            target = self.target(x.flip(1))
        return self.online(x), target


model = Net()
optimizer = torch.optim.SGD(model.online.parameters(), lr=0.1)
for _ in range(4):
    x, y = torch.randn(16, 6), torch.randn(16, 4)
    online, target = model(x)
    mask = (x[:, :1] > 0).to(online.dtype)
    loss = (functional.normalize(online, dim=-1) - functional.normalize(target, dim=-1)).square().mean()
    loss = loss + (mask * (online - y).square()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for average, weight in zip(model.target.parameters(), model.online.parameters(), strict=True):
            average.mul_(0.9).add_(weight, alpha=0.1)
