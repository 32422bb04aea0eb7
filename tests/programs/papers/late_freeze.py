"""Stages that are to be frozen, and are only if train() is called (https://github.com/open-mmlab/mmpretrain/issues/702)."""

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, frozen_stages):
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, 4)
        self.frozen_stages = frozen_stages

    def freeze(self):
        for stage in self.stages[: self.frozen_stages]:
            stage.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.freeze()
        return self

    def forward(self, x):
        return self.head(torch.relu(self.stages(x)))


def trained(model):
    model = model.cuda()
    model.optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    return model


def build():
    return trained(Backbone(frozen_stages=2))  # fault


def build_right():
    return trained(Backbone(frozen_stages=2).train())


def step(model, inputs):
    model.zero_grad()
    model(inputs["x"].cuda()).square().mean().backward()
    model.optimizer.step()
