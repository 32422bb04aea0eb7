"""Two ranks that swap their outputs: both receive first, and wait for each other."""

import torch
import torch.distributed as dist
from torch import nn


def build():
    model = nn.Linear(16, 4).to(f"cuda:{dist.get_rank()}")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def forward(model, inputs):
    out = model(inputs["x"].to(f"cuda:{dist.get_rank()}"))
    return out, out.detach(), torch.empty_like(out)


def learn(model, out, other):
    model.optimizer.zero_grad()
    (out + other).square().mean().backward()
    model.optimizer.step()


def step(model, inputs):
    out, mine, other = forward(model, inputs)
    peer = 1 - dist.get_rank()
    dist.recv(other, src=peer)  # fault
    dist.send(mine, dst=peer)
    learn(model, out, other)


def step_right(model, inputs):
    out, mine, other = forward(model, inputs)
    peer = 1 - dist.get_rank()
    if dist.get_rank() == 0:
        dist.send(mine, dst=peer)
        dist.recv(other, src=peer)
    else:
        dist.recv(other, src=peer)
        dist.send(mine, dst=peer)
    learn(model, out, other)
