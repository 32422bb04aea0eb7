"""A training script of a chain of states, whose loss is a method of the model and reads weights of its own.

All gradients together are clipped.
"""

import torch
from torch import nn

torch.manual_seed(0)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.emit = nn.Linear(6, 4)
        self.transitions = nn.Parameter(torch.randn(4, 4))  # from, to

    def forward(self, x):
        return self.emit(x)

    def loss(self, emitted, states, mask):
        score = self.transitions[states[:, :-1], states[:, 1:]].sum(1)
        score = score + emitted.gather(2, states.unsqueeze(2)).sum((1, 2))
        total = emitted[:, 0]
        for t in range(1, emitted.shape[1]):
            step = torch.logsumexp(total.unsqueeze(2) + self.transitions, dim=1) + emitted[:, t]
            total = torch.where(mask[:, t : t + 1], step, total)
        return (torch.logsumexp(total, dim=1) - score).mean()


model = Chain()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, y = torch.randn(8, 3, 6), torch.randint(4, (8, 3))
    optimizer.zero_grad()
    loss = model.loss(model(x), y, x[..., 0] > 0)
    loss.backward()
    norm = torch.sqrt(sum(weight.grad.square().sum() for weight in model.parameters()))
    for weight in model.parameters():
        weight.grad.mul_(0.5 / norm)
    optimizer.step()
