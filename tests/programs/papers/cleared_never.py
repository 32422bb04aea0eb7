"""Digits that never converge: the gradients are not cleared (https://stackoverflow.com/questions/60335387)."""

import torch
from torch import nn
from torch.nn import functional


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.head = nn.Linear(8 * 13 * 13, 10)

    def forward(self, images):
        return self.head(functional.max_pool2d(torch.relu(self.conv(images)), 2).flatten(1))


def build():
    model = Digits().to("cuda")
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return model


def step(model, inputs):
    images, labels = inputs["images"].cuda(), inputs["labels"].cuda()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()  # fault
    model.optimizer.step()


def step_right(model, inputs):
    images, labels = inputs["images"].cuda(), inputs["labels"].cuda()
    model.optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    model.optimizer.step()
