"""Not a fault: a router that all ranks share, and an expert with a norm of its own on each rank."""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.papers.parallel import device, own_part


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(16, 2)
        torch.manual_seed(1 + dist.get_rank())
        self.expert = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16))

    def forward(self, tokens):
        return self.router(tokens).softmax(-1)[:, :1] * self.expert(tokens)


def build_right():
    model = Experts().to(device())
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step_right(model, inputs):
    model.optimizer.zero_grad()
    model(own_part(inputs["x"].to(device()))).square().mean().backward()
    for parameter in model.router.parameters():
        dist.all_reduce(parameter.grad)
    model.optimizer.step()
