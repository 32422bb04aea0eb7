"""A script for torchrun: the model goes to the GPU of the rank, the batch stays on the CPU."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build():
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).cuda())
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, x):
    model.optimizer.zero_grad()
    loss = model(x).square().mean()  # fault
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    train(model, inputs["x"])  # wrong
    # right: train(model, inputs["x"].cuda())
