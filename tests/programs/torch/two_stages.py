"""Two ranks, a stage each: the second never sends the gradient back, the first never learns."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

SHAPE = (8, 32)  # of the activation between the stages


def build():
    device = torch.device("cuda", dist.get_rank())
    stages = [nn.Sequential(nn.Linear(16, 32), nn.Tanh()), nn.Linear(32, 4)]
    stage = stages[dist.get_rank()].to(device)
    stage.optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    return stage


def last_stage(stage, inputs):
    """The loss's gradient with respect to what the first stage sent."""
    received = torch.empty(SHAPE, device="cuda:1")
    dist.recv(received, src=0)
    received.requires_grad_()
    loss = functional.cross_entropy(stage(received), inputs["y"].to("cuda:1"))
    loss.backward()
    return received.grad


def step(stage, inputs):
    stage.optimizer.zero_grad()
    if dist.get_rank() == 0:
        hidden = stage(inputs["x"].to("cuda:0"))
        dist.send(hidden, dst=1)  # fault
    else:
        last_stage(stage, inputs)
    stage.optimizer.step()


def step_right(stage, inputs):
    stage.optimizer.zero_grad()
    if dist.get_rank() == 0:
        hidden = stage(inputs["x"].to("cuda:0"))
        dist.send(hidden.detach(), dst=1)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, src=1)
        hidden.backward(gradient)
    else:
        dist.send(last_stage(stage, inputs), dst=0)
    stage.optimizer.step()
