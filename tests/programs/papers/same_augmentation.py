"""Patches at random places of a picture: every worker of the loader draws the same places.

The workers begin with copies of the data set, its generator among them. Of NumPy's global generator PyTorch took care
in https://github.com/pytorch/pytorch/pull/56488, of a generator of one's own it cannot.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 4


class Patches(Dataset):
    def __init__(self, own_generators):
        self.picture = torch.arange(32.0 * 32).reshape(32, 32).sin()
        self.generator = None if own_generators else np.random.default_rng(0)

    def __len__(self):
        return 16

    def __getitem__(self, _):
        if self.generator is None:
            self.generator = np.random.default_rng(torch.initial_seed())
        top, left = self.generator.integers(0, 32 - SIZE, 2)
        return self.picture[top : top + SIZE, left : left + SIZE].flatten()


def model_with(own_generators):
    model = nn.Linear(SIZE * SIZE, 2).cuda()
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.patches = [Patches(own_generators)]
    return model


def build():
    return model_with(own_generators=False)


def build_right():
    return model_with(own_generators=True)


def step(model, inputs):
    for patches in DataLoader(model.patches[0], batch_size=4, num_workers=2):  # fault
        model.optimizer.zero_grad()
        model(patches.cuda()).square().mean().backward()
        model.optimizer.step()
