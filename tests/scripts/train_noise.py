"""A network that tells the noise in what it is given, for one of several classes."""

import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIZE = 5, 12


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.of_class, self.of_time = nn.Embedding(CLASSES, 16), nn.Linear(1, 16)
        self.first, self.second = nn.Linear(SIZE, 16), nn.Linear(16, SIZE)

    def forward(self, x: torch.Tensor, time: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x) + self.of_time(time) + self.of_class(labels)))


model = Denoiser()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rng = np.random.default_rng(0)
data = TensorDataset(
    torch.from_numpy(rng.normal(size=(64, SIZE)).astype("float32")), torch.from_numpy(rng.integers(0, CLASSES, 64))
)
for x, labels in DataLoader(data, batch_size=16, shuffle=True):
    time = torch.rand(len(x), 1)
    noise = torch.randn_like(x)
    share = torch.cos(time * math.pi / 2) ** 2
    loss = nn.functional.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, time, labels), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
