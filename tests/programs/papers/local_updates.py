"""Not a fault: each rank makes some updates of its own, and then the parameters are averaged (local SGD)."""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.papers.parallel import device, own_part

EVERY = 2


def build_right():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device())
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.number = 0
    return model


def average(model):
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter)
            parameter /= dist.get_world_size()


def step_right(model, inputs):
    for part in own_part(inputs["x"].to(device())).chunk(EVERY):
        model.optimizer.zero_grad()
        model(part).square().mean().backward()
        model.optimizer.step()
    average(model)
