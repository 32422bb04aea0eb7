"""A critic with a gradient penalty at random points between two sets."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.05)
for (real,) in DataLoader(TensorDataset(torch.randn(128, 2) + 1), batch_size=32, shuffle=True):
    fake, share = torch.randn(32, 2), torch.rand(32, 1)
    between = (share * real + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    loss = critic(fake).mean() - critic(real).mean() + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
