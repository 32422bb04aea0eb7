"""A training script whose batches hold two views of each sample, which one call of the model takes together."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
views = torch.randn(32, 6), torch.randn(32, 6)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for first, second in DataLoader(TensorDataset(*views), batch_size=8, shuffle=True):
    z = nn.functional.normalize(model(torch.cat([first, second])), dim=1)
    alike = (z @ z.T / 0.5).masked_fill(torch.eye(16, dtype=torch.bool), -1e9)
    loss = nn.functional.cross_entropy(alike, torch.arange(16).roll(8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
