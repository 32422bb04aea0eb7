"""Modules made in calls for good reasons: without parameters, once, and trained where they are made."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.head = None

    def forward(self, x):
        hidden = nn.Dropout(0.1)(nn.ReLU()(self.body(x)))
        if self.head is None:
            self.head = nn.Linear(hidden.shape[-1], 4, device=x.device)
        return self.head(hidden)

    def probe(self, x, y):
        """A linear probe of its own for each batch."""
        hidden = self.body(x).detach()
        probe = nn.Linear(hidden.shape[-1], 4, device=x.device)
        optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            functional.cross_entropy(probe(hidden), y).backward()
            optimizer.step()


def build_right():
    model = Net().to("cuda")
    model(torch.zeros(1, 16, device="cuda"))
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def step_right(model, inputs):
    x, y = inputs["x"].to("cuda"), inputs["y"].to("cuda")
    model.optimizer.zero_grad()
    noise = nn.Parameter(torch.zeros_like(x))
    (gradient,) = torch.autograd.grad(functional.cross_entropy(model(x + noise), y), noise)
    functional.cross_entropy(model(x + 0.01 * gradient.sign()), y).backward()
    model.optimizer.step()
    model.probe(x, y)
