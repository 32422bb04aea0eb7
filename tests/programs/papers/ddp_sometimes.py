"""The model is wrapped in DistributedDataParallel in some steps, and called bare in others.

Seen in a trainer that stored now the one, now the other (https://x.com/jxmnop/status/1778520637193240892): where the
bare module is called, nobody averages the gradients.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build():
    device = torch.device("cuda", dist.get_rank())
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.number = 0
    return model


def train(model, called, inputs):
    model.optimizer.zero_grad()
    loss = called(inputs["x"].to(torch.device("cuda", dist.get_rank()))).square().mean()
    loss.backward()
    model.optimizer.step()  # fault
    model.number += 1


def step(model, inputs):
    train(model, model if model.number % 2 else model.module, inputs)


def step_right(model, inputs):
    train(model, model, inputs)
