"""A variational autoencoder, in a loop."""

import numpy as np
import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.mean, self.deviation = nn.Linear(50, 16), nn.Linear(16, 3), nn.Linear(16, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 50))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.hidden(x))
        mean, deviation = self.mean(hidden), self.deviation(hidden)
        return self.decoder(mean + torch.exp(0.5 * deviation) * torch.randn_like(mean)), mean, deviation


model = VAE()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.from_numpy(np.random.default_rng(0).normal(size=(96, 50)).astype("float32"))
for start in range(0, 96, 24):
    x = data[start : start + 24]
    decoded, mean, deviation = model(x)
    loss = (decoded - x).square().sum(1).mean() - 0.5 * (1 + deviation - mean**2 - deviation.exp()).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
