"""DDP as torchrun starts it, with gradients accumulated under no_sync and a loss that is averaged for the log."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PARTS = 2


def build_right():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.total = torch.zeros((), device=device)
    return model


def step_right(model, inputs):
    model.optimizer.zero_grad()
    first, second = inputs["x"].to(model.total.device).chunk(PARTS)
    with model.no_sync():
        (model(first).square().mean() / PARTS).backward()
    loss = model(second).square().mean() / PARTS
    loss.backward()
    model.optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    model.total += mean / dist.get_world_size()
