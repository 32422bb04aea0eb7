"""Gradients are averaged by hand, and each rank begins with weights of its own."""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.torch.usual import with_optimizer


def network():
    device = torch.device("cuda", dist.get_rank())
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device)  # fault


def build():
    return with_optimizer(network())  # wrong
    # right: model = network()
    # right: for parameter in model.parameters():
    # right:     dist.broadcast(parameter.data, src=0)
    # right: return with_optimizer(model)


def step(model, inputs):
    model.optimizer.zero_grad()
    x = inputs["x"].to(torch.device("cuda", dist.get_rank()))
    model(x.chunk(2)[dist.get_rank()]).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    model.optimizer.step()
