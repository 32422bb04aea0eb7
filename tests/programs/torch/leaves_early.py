"""One rank has no batch left and returns; the other waits for its gradients."""

import torch
import torch.distributed as dist
from torch import nn


def build():
    torch.manual_seed(0)
    model = nn.Linear(16, 4).to(f"cuda:{dist.get_rank()}")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, x):
    model.optimizer.zero_grad()
    model(x.to(f"cuda:{dist.get_rank()}")).square().sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # fault
    model.optimizer.step()


def step(model, inputs):
    mine = inputs["x"].split(8)[dist.get_rank() :: 2]  # wrong
    if not mine:  # wrong
        return  # wrong
    train(model, mine[0])  # wrong
    # right: mine = inputs["x"].chunk(2)[dist.get_rank()]
    # right: train(model, mine)
