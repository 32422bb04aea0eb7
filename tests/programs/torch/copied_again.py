"""Every block moves the mask of the batch to the device again."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x, mask):
        return x + self.linear(x) * mask.to(x.device)  # fault


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x, mask):
        for block in self.blocks:
            x = block(x, mask)
        return x


def build():
    model = Net().to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0"), inputs["mask"]).square().mean()
    loss.backward()
    model.optimizer.step()


def step_right(model, inputs):
    step(model, {name: tensor.to("cuda:0") for name, tensor in inputs.items()})
