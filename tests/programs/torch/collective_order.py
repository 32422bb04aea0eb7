"""Gradients are averaged by hand, and the loss is shared for the log: the first rank does it the other way round."""

import torch
import torch.distributed as dist
from torch import nn


def build():
    torch.manual_seed(0)
    model = nn.Linear(16, 4).to(f"cuda:{dist.get_rank()}")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def backward(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to(f"cuda:{dist.get_rank()}")).square().mean()
    loss.backward()
    return loss.detach()


def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # fault
        parameter.grad /= dist.get_world_size()


def step(model, inputs):
    loss = backward(model, inputs)
    if dist.get_rank() == 0:
        dist.broadcast(loss, src=0)
        average(model)
    else:
        average(model)
        dist.broadcast(loss, src=0)
    model.optimizer.step()


def step_right(model, inputs):
    loss = backward(model, inputs)
    average(model)
    dist.broadcast(loss, src=0)
    model.optimizer.step()
