"""Two networks against each other, each with an optimizer of its own."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE, SIZE = 8, 12

generator = nn.Sequential(nn.Linear(NOISE, 16), nn.ReLU(), nn.Linear(16, SIZE), nn.Tanh())
critic = nn.Sequential(nn.Linear(SIZE, 16), nn.ELU(), nn.Linear(16, 1))
of_generator = torch.optim.SGD(generator.parameters(), lr=0.2)
of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()
data = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (64, SIZE)).astype("float32"))

for _ in range(2):
    for (real,) in DataLoader(TensorDataset(data), batch_size=16, shuffle=True):
        count = len(real)
        of_critic.zero_grad()
        criterion(critic(real), torch.ones(count, 1)).backward()
        fake = generator(torch.randn(count, NOISE))
        criterion(critic(fake.detach()), torch.zeros(count, 1)).backward()
        of_critic.step()
        of_generator.zero_grad()
        criterion(critic(fake), torch.ones(count, 1)).backward()
        of_generator.step()
    with torch.no_grad():
        print(generator(torch.randn(4, NOISE)).mean())
