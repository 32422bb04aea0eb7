"""A training script that calls its model twice in a step, on images that are alike or not."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.dropout, self.out = nn.Conv2d(3, 8, 3), nn.Dropout(0.1), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.dropout(torch.relu(self.conv(x)).mean((2, 3))))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, other, alike = torch.randn(16, 3, 6, 6), torch.randn(16, 3, 6, 6), torch.randint(0, 2, (16,)).float()
    distance = (model(x) - model(other)).square().sum(1)
    loss = (alike * distance + (1 - alike) * torch.relu(1 - distance)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
