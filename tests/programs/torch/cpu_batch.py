"""A batch of the data loader's, on the CPU, fed to a model on the GPU."""

import torch
from torch import nn
from torch.nn import functional


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def build():
    model = Classifier().cuda()
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def train(model, x, y):
    logits = model(x)  # fault
    loss = functional.cross_entropy(logits, y)
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    train(model, inputs["x"], inputs["y"])  # wrong
    # right: train(model, inputs["x"].cuda(), inputs["y"].cuda())
