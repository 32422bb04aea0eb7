"""A net that is called three times in a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gru, self.last = nn.Linear(5, 8), nn.GRU(8, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x):
        return self.last(self.gru(torch.tanh(self.first(x)))[0][:, -1])


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(TensorDataset(*torch.randn(3, 48, 4, 5)), batch_size=12)
for _ in range(2):
    for batch in data:
        optimizer.zero_grad()
        own, alike, other = map(model, batch)
        near, far = ((own - each).square().sum(1) for each in (alike, other))
        torch.relu(near - far + 1).mean().backward()
        optimizer.step()
