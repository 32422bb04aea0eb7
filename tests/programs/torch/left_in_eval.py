"""The model is left in eval mode after a validation, and trained on."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


def build():
    model = build_right()
    model.eval()
    return model


def build_right():
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    model.to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model
