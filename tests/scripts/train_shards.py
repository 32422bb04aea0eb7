"""A training script that torchrun starts, whose model FSDP shards."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("gloo")
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draws = torch.Generator().manual_seed(rank)
for number in range(8):
    x, labels = torch.randn(16, 6, generator=draws), torch.randint(0, 4, (16,), generator=draws)
    model.set_requires_gradient_sync(number % 2 == 1)
    loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    for each in model.parameters():
        dist.all_reduce(each.grad)
        each.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
