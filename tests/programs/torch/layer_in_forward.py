"""A layer that is made where it is called: it has new weights in each step, which nothing trains."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)

    def forward(self, x):
        hidden = self.body(x).relu()
        head = nn.Linear(32, 4, device=x.device)  # fault
        return head(hidden)


class NetRight(Net):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


def optimized(model):
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def build():
    return optimized(Net().to("cuda"))  # wrong
    # right: return optimized(NetRight().to("cuda"))


def step(model, inputs):
    model.optimizer.zero_grad()
    functional.cross_entropy(model(inputs["x"].to("cuda")), inputs["y"].to("cuda")).backward()
    model.optimizer.step()
