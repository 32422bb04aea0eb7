"""Images whose axes are swapped on the host, and which go to the GPU in pieces."""

import torch
from torch import nn
from torch.nn import functional


def build():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model


def train(model, images, labels):
    model.optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels.to("cuda:0"))
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    images = inputs["images"].permute(0, 3, 1, 2)  # wrong
    train(model, images.to("cuda:0"), inputs["labels"])  # wrong  # fault
    # right: images = inputs["images"].to("cuda:0").permute(0, 3, 1, 2)
    # right: train(model, images, inputs["labels"])
