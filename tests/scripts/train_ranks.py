"""A training script for several GPUs: a process for each, a wrapped model, and a scaled loss."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LOCAL_BATCH = 16


class Placed(nn.Module):
    def forward(self, x):
        return x.cuda()


def set_up(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "29511"
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def main(rank, world_size):
    set_up(rank, world_size)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 6), torch.randint(0, 4, (64,)))
    loader = DataLoader(data, LOCAL_BATCH, sampler=DistributedSampler(data, world_size, rank), pin_memory=True)
    model = nn.Sequential(Placed(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).to(rank)
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * world_size)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(rank)), labels.to(rank))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = torch.cuda.device_count()
    mp.spawn(main, args=(ranks,), nprocs=ranks)
