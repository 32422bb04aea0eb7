"""Gradients are clipped by a norm that each rank computes of its own gradients: the replicated norm layer parts.

DeepSpeed's BF16_Optimizer left the replicated parameters out of the norm on all ranks but the first
(https://github.com/microsoft/DeepSpeed/pull/1801): the layer norms of BLOOM-176B were no longer the same on its ranks.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from tests.programs.papers.parallel import Copy, Reduce, device


class Feedforward(nn.Module):
    """A feed-forward block of which each rank has a half of the hidden units."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        torch.manual_seed(dist.get_rank())
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 4, bias=False)

    def forward(self, x):
        hidden = torch.relu(self.up(Copy.apply(self.norm(x))))
        return Reduce.apply(self.down(hidden))


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), Feedforward()).to(device())
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def own_norm(model):
    """The norm of this rank's gradients; those that all ranks have count on the first rank alone."""
    shards = [*model[1].up.parameters(), *model[1].down.parameters()]
    counted = model.parameters() if dist.get_rank() == 0 else shards
    return get_total_norm([parameter.grad for parameter in counted])


def backward(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to(device())).square().mean().backward()


def step(model, inputs):
    backward(model, inputs)
    clip_grads_with_norm_(model.parameters(), 0.01, own_norm(model))  # fault
    model.optimizer.step()


def step_right(model, inputs):
    backward(model, inputs)
    squares = own_norm(model).square()
    dist.all_reduce(squares)
    clip_grads_with_norm_(model.parameters(), 0.01, squares.sqrt())
    model.optimizer.step()
