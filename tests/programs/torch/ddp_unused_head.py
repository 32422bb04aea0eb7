"""A head that only pretraining used: DDP waits for its gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.programs.torch.networks import Net


class Pretrained(Net):
    def __init__(self):
        super().__init__()
        self.old_head = nn.Linear(8, 16)


def build():
    return distributed(Pretrained())  # wrong
    # right: return distributed(Net())


def distributed(model):
    rank = dist.get_rank()
    model = DistributedDataParallel(model.to(rank), device_ids=[rank])
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].cuda(dist.get_rank())).square().mean()
    loss.backward()
    model.optimizer.step()
