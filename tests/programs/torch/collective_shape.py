"""Every rank reduces the outputs of its own batch, and the last rank has fewer rows."""

import torch
import torch.distributed as dist
from torch import nn


def build():
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    torch.cuda.set_device(dist.get_rank())
    model = nn.Linear(16, 4).cuda()
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, x):
    model.optimizer.zero_grad()
    out = model(x.cuda())
    out.square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    model.optimizer.step()
    return out.detach()


def step(model, inputs):
    rows = 8 if dist.get_rank() == 0 else 5  # wrong
    out = train(model, inputs["x"][:rows])  # wrong
    # right: out = train(model, inputs["x"])
    dist.all_reduce(out)  # fault
