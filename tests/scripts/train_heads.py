"""A training script with two heads, each with a loss and a target of its own."""

import torch
from data import CLASSES
from torch import nn
from torch.nn import functional


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.size, self.kind = nn.Linear(6, 16), nn.Linear(16, 1), nn.Linear(16, CLASSES)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return self.kind(hidden), self.size(hidden)


model = Heads()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, sizes, kinds = torch.randn(16, 6), torch.randn(16, 1), torch.randint(0, CLASSES, (16,))
    kind, size = model(x)
    loss = 0.5 * functional.mse_loss(size, sizes) + functional.cross_entropy(kind, kinds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
