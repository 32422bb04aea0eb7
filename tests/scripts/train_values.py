"""A value network beside its target network, trained on samples that the script draws itself."""

import copy

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
states, later = (torch.from_numpy(rng.normal(size=(64, 6)).astype("float32")) for _ in range(2))
actions = torch.from_numpy(rng.integers(0, 4, 64))
rewards, weights = (torch.from_numpy(rng.uniform(size=64).astype("float32")) for _ in range(2))

model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
target = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    chosen = torch.from_numpy(rng.choice(64, 16, replace=False))
    with torch.no_grad():
        best = model(later[chosen]).argmax(1, keepdim=True)
        goal = rewards[chosen] + 0.9 * target(later[chosen]).gather(1, best)[:, 0]
    taken = model(states[chosen]).gather(1, actions[chosen][:, None])[:, 0]
    loss = (weights[chosen] * nn.functional.huber_loss(taken, goal, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
            slow.mul_(0.9).add_(fast, alpha=0.1)
