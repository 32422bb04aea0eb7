"""Experts on two ranks: a rank none of whose tokens go to the other one skips the exchange, and the other one waits.

DeepSpeed's layer of experts called all_to_all as often as its own tokens needed it
(https://github.com/microsoft/DeepSpeed/issues/5794): training hangs once the ranks differ.
"""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.papers.parallel import device


def build():
    torch.manual_seed(dist.get_rank())
    expert = nn.Linear(16, 16).to(device())
    expert.optimizer = torch.optim.SGD(expert.parameters(), lr=0.1)
    expert.number = 0
    return expert


def exchanged(tokens):
    received = torch.empty_like(tokens)
    dist.all_to_all_single(received, tokens.contiguous())
    return received


def needed(model):
    """Whether this rank has tokens for the other one's expert, which the router decides anew in each step."""
    model.number += 1
    return dist.get_rank() == 0 or model.number != 2


def train(model, tokens):
    model.optimizer.zero_grad()
    loss = model(tokens).square().mean()
    loss.backward()
    dist.all_reduce(loss.detach().clone())  # fault
    model.optimizer.step()


def step(model, inputs):
    tokens = inputs["x"].to(device())
    train(model, exchanged(tokens) if needed(model) else tokens)


def step_right(model, inputs):
    tokens = exchanged(inputs["x"].to(device()))
    train(model, tokens)
