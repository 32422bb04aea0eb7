"""Two modules of one optimizer, and a target network that follows one of them."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def distance(prediction, target):
    return 2 - 2 * (functional.normalize(prediction, dim=1) * functional.normalize(target, dim=1)).sum(1)


loader = DataLoader(TensorDataset(torch.randn(48, 6), torch.randn(48, 6)), batch_size=12, shuffle=True)
online = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
predictor = nn.Sequential(nn.Linear(5, 5))
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.1, momentum=0.9)
for one, other in loader:
    predictions = predictor(online(one)), predictor(online(other))
    with torch.no_grad():
        targets = target(one), target(other)
    loss = (distance(predictions[0], targets[1]) + distance(predictions[1], targets[0])).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for follower, leader in zip(target.parameters(), online.parameters(), strict=True):
            follower.copy_(0.75 * follower + 0.25 * leader)
