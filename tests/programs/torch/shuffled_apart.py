"""Samples and labels are shuffled, each in an order of its own."""

import torch
from torch import nn

from tests.programs.torch.usual import build as build


def train(model, x, y):
    model.optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    x = inputs["x"][torch.randperm(8)].to("cuda:0")
    y = inputs["y"][torch.randperm(8)].to("cuda:0")  # fault
    train(model, x, y)


def step_right(model, inputs):
    """Also mixed with samples of another order, whose labels are used beside the right ones."""
    order = torch.randperm(8)
    x, y = inputs["x"][order].to("cuda:0"), inputs["y"][order].to("cuda:0")
    train(model, x, y)
    other = torch.randperm(8)
    mixed = model(0.7 * x + 0.3 * x[other])
    model.optimizer.zero_grad()
    (0.7 * nn.functional.cross_entropy(mixed, y) + 0.3 * nn.functional.cross_entropy(mixed, y[other])).backward()
    model.optimizer.step()
