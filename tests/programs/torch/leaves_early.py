"""One rank has no batch left and returns; the other waits for its gradients."""

import torch.distributed as dist

from tests.programs.torch.collective_order import build as build


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
