"""A router of experts that nobody keeps the same on the ranks of a tensor-parallel group.

With sequence parallelism each rank routes its own tokens; Megatron-LM's SwitchMLP had its router as a plain nn.Linear,
whose gradients were not added up (https://github.com/NVIDIA/Megatron-LM/issues/599).
"""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.papers.parallel import Reduce, device, own_part


class Switch(nn.Module):
    """Two experts, one on each rank, and the router that weighs them."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 2)
        torch.manual_seed(dist.get_rank())
        self.expert = nn.Linear(16, 16)

    def forward(self, tokens):
        weights = own_part(self.router(tokens).softmax(-1))
        return weights[:, :1] * self.expert(own_part(tokens))


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), Switch()).to(device())
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, inputs, shared):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to(device())).square().mean()
    Reduce.apply(loss).backward()
    for parameter in shared:
        dist.all_reduce(parameter.grad)
    model.optimizer.step()  # fault


def step(model, inputs):
    train(model, inputs, model[0].parameters())


def step_right(model, inputs):
    train(model, inputs, [*model[0].parameters(), *model[1].router.parameters()])
