"""An optimizer that is sharded as by ZeRO: each rank updates a half of the parameters, and passes it on too early.

With --overlap-param-gather, Megatron-LM computed with parameters that the gather had not brought yet
(https://github.com/NVIDIA/Megatron-LM/issues/663, https://github.com/NVIDIA/Megatron-LM/issues/950).
"""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.papers.parallel import device, own_part


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device())
    model.owners = {parameter: number // 2 for number, parameter in enumerate(model.parameters())}
    own = [parameter for parameter, owner in model.owners.items() if owner == dist.get_rank()]
    model.optimizer = torch.optim.Adam(own, lr=0.01)
    return model


def backward(model, inputs):
    model.zero_grad()
    model(own_part(inputs["x"].to(device()))).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def gather(model):
    with torch.no_grad():
        for parameter, owner in model.owners.items():
            dist.broadcast(parameter, src=owner)


def step(model, inputs):
    backward(model, inputs)
    gather(model)
    model.optimizer.step()  # fault


def step_right(model, inputs):
    backward(model, inputs)
    model.optimizer.step()
    gather(model)
