"""Each rank says "cuda", which is the first GPU for all of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def network():
    dist.init_process_group("nccl")
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    model = model.to(device)  # fault
    model.train()
    return model


def network_right():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda")


def parallel(model):
    model = DistributedDataParallel(model)
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build():
    return parallel(network())  # wrong
    # right: return parallel(network_right())


def step(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda")).square().mean().backward()
    model.optimizer.step()
