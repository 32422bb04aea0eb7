"""A model goes to the CPU and back after DistributedDataParallel has wrapped it: the gradients are averaged no more.

DDP hangs its hooks on the parameters' gradient accumulators, which PyTorch makes anew when device or type changes
(https://github.com/pytorch/pytorch/issues/104336).
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def network():
    device = torch.device("cuda", dist.get_rank())
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device), device


def with_optimizer(model):
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    model, device = network()
    model = DistributedDataParallel(model, device_ids=[device.index])
    model.cpu()  # so that the GPU is free for something else
    model.to(device)
    return with_optimizer(model)


def build_right():
    model, device = network()
    model.cpu()
    model.to(device)
    return with_optimizer(DistributedDataParallel(model, device_ids=[device.index]))


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to(torch.device("cuda", dist.get_rank()))).square().mean()
    loss.backward()
    model.optimizer.step()  # fault
