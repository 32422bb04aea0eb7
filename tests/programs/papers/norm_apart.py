"""The last layer norm under sequence parallelism: each rank has a part of the tokens, and the gradients stay apart.

Megatron-LM adds up the gradients of the layer norms it has marked, and the last one was not marked
(https://github.com/NVIDIA/Megatron-LM/issues/1446).
"""

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.papers.parallel import device, own_part


class Decoder(nn.Module):
    def __init__(self, marked):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.block = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16))
        self.final_norm = nn.LayerNorm(16)
        self.sequence_parallel = [*self.embedding.parameters(), *self.block.parameters()]
        if marked:
            self.sequence_parallel += self.final_norm.parameters()

    def forward(self, ids):
        x = own_part(self.embedding(ids).transpose(0, 1))
        return self.final_norm(x + self.block(x)) @ self.embedding.weight.T


def build():
    return trained(Decoder(marked=False))


def build_right():
    return trained(Decoder(marked=True))


def trained(model):
    torch.manual_seed(0)
    nn.init.normal_(model.embedding.weight)
    nn.init.normal_(model.block[1].weight, std=0.1)
    nn.init.zeros_(model.block[1].bias)
    model = model.to(device())
    model.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model


def step(model, inputs):
    ids = inputs["ids"].to(device())
    targets = own_part(ids.roll(-1, 1).T)
    model.optimizer.zero_grad()
    nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
    for parameter in model.sequence_parallel:
        dist.all_reduce(parameter.grad)
    model.optimizer.step()  # fault
