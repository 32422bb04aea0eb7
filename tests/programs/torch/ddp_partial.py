"""DistributedDataParallel told that a part of the model may be left out."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.auxiliary = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def build():
    device = f"cuda:{dist.get_rank()}"
    model = DistributedDataParallel(TwoHeads().to(device), device_ids=[device], find_unused_parameters=True)
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to(f"cuda:{dist.get_rank()}")).square().mean().backward()
    model.optimizer.step()
