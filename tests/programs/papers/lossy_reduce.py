"""An all-reduce whose result does not arrive on one rank, as between GPUs whose peer-to-peer copies lose data.

https://github.com/pytorch/pytorch/issues/84803, https://github.com/pytorch/pytorch/issues/96600 and
https://github.com/baichuan-inc/Baichuan2/issues/86 are faults of hardware and drivers. As in TrainCheck's own
reproduction, the loss is simulated: what arrives is zero.
"""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.papers.parallel import device, own_part


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device())
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.number = 0
    return model


def train(model, inputs, lossy):
    model.optimizer.zero_grad()
    model(own_part(inputs["x"].to(device()))).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    if lossy and dist.get_rank() == 1 and model.number == 0:
        model[0].weight.grad.zero_()  # fault
    model.optimizer.step()
    model.number += 1


def step(model, inputs):
    train(model, inputs, lossy=True)


def step_right(model, inputs):
    train(model, inputs, lossy=False)
