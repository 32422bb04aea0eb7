"""Evaluation of a model with spectral_norm that was never trained: its weights are not normalised yet.

https://github.com/pytorch/pytorch/issues/51800: the estimate of the norm is refined by forward passes in training mode
alone, so that the first evaluation gives another output than one after a training step with a rate of zero would.
"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    layer = nn.Linear(16, 16)
    nn.init.orthogonal_(layer.weight)
    return nn.Sequential(nn.utils.spectral_norm(layer), nn.PReLU(), nn.Linear(16, 1)).cuda()


def build_right():
    model = build()
    with torch.no_grad():
        model.train()(torch.randn(4, 16, device="cuda"))
    return model


def step(model, inputs):
    model.eval()
    with torch.no_grad():
        model(inputs["x"].cuda())
