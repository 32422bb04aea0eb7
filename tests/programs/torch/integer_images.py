"""Images as bytes, given to a layer of floats."""

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU(), nn.Linear(16, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, images):
    model.optimizer.zero_grad()
    loss = model(images).square().mean()  # fault
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    train(model, inputs["images"].to("cuda:0"))  # wrong
    # right: train(model, inputs["images"].to("cuda:0").float() / 255)
