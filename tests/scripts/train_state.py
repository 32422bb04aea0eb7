"""A recurrent net that is given a state of zeros, and returns one."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(5, 6, batch_first=True, bias=False), nn.Linear(6, 4)

    def forward(self, x, state):
        seen, state = self.lstm(x, state)
        return self.last(seen), state


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, labels = torch.randn(12, 7, 5), torch.randint(4, (12, 7))
    state = torch.zeros(1, 12, 6), torch.zeros(1, 12, 6)
    outputs, state = model(x, state)
    optimizer.zero_grad()
    nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten()).backward()
    optimizer.step()
