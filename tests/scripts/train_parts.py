"""Two modules that a loop calls one by one, which one optimizer trains."""

import torch
from torch import nn

features, labels = torch.randn(96, 6), torch.randint(0, 3, (96,))
backbone, head = nn.Sequential(nn.Linear(6, 8), nn.ReLU()), nn.Linear(8, 3)
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.2)
for start in range(0, 96, 16):
    x, y = features[start : start + 16], labels[start : start + 16]
    loss = nn.functional.cross_entropy(head(backbone(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
