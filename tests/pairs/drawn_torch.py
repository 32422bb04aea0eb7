"""Random numbers of every kind: noise, stochastic depth, mixed samples, sampled scales and sampled ids."""

import torch
from torch import nn


class Drawn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.mean, self.deviation = nn.Linear(8, 4), nn.Linear(8, 4)
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x = x + 0.3 * torch.randn_like(x)
        y = torch.relu(self.conv(x))
        if self.training:
            y = y * y.new_empty(len(y), 1, 1, 1).bernoulli_(0.75) / 0.75
        y = y.mean((2, 3))
        y = 0.75 * y + 0.25 * y[torch.randperm(len(y))]
        z = self.mean(y) + torch.exp(self.deviation(y)) * torch.randn(len(y), 4)
        z = z * torch.empty(len(y), 1).uniform_(0.5, 2.0)
        z = z * torch.distributions.Beta(0.4, 2.0).sample((len(y), 1))
        z = z + torch.distributions.Gamma(2.0, 4.0).sample((len(y), 4))
        return self.head(z + self.embedding(torch.randint(0, 5, (len(y),))))
