"""A head that only pretraining used: DDP waits for its gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


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
