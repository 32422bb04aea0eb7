"""Half of the model in bfloat16 by hand; the casts between hide it."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        hidden = torch.relu(self.body(x.to(self.body.weight.dtype)))
        return self.head(hidden.to(self.head.weight.dtype))


def build():
    model = Net()  # wrong
    model.body.bfloat16()  # wrong  # fault
    return on_gpu(model)  # wrong
    # right: return on_gpu(Net())


def on_gpu(model):
    model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
