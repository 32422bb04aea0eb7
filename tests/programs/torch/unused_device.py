"""A model on two of three devices."""

import torch
from torch import nn


class Pipeline(nn.Module):
    def __init__(self, devices):
        super().__init__()
        self.stages = nn.ModuleList(nn.Linear(16, 16).to(device) for device in devices)
        self.devices = devices

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices, strict=True):
            x = torch.tanh(stage(x.to(device)))
        return x


def build(devices=("cuda:0", "cuda:1")):
    model = Pipeline(devices)
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build_right():
    return build(("cuda:0", "cuda:1", "cuda:2"))


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"]).square().mean()
    loss.backward()
    model.optimizer.step()
