"""Model parallelism in one process: block i on device i mod n, activations copied from device to device."""

import torch
from torch import nn

from torch_impl.models.block import Block, Tensors, as_tuple
from torch_impl.strategies.single import MakeModel, MakeOptimizer, Placed, evaluate, train

__all__ = ["RoundRobin", "evaluate", "place", "train"]


class RoundRobin(nn.Module):
    """A model whose blocks are on the devices in turn; the output is on the last block's device."""

    def __init__(self, blocks: list[Block], devices: list[torch.device]):
        super().__init__()
        self.blocks = blocks
        self.devices = [devices[i % len(devices)] for i in range(len(blocks))]
        self.parts = nn.ModuleList(nn.ModuleList(block.modules) for block in blocks)
        for part, device in zip(self.parts, self.devices, strict=True):
            part.to(device)

    def forward(self, *tensors: torch.Tensor) -> Tensors:
        for block, device in zip(self.blocks, self.devices, strict=True):
            tensors = as_tuple(block.forward(*(tensor.to(device) for tensor in tensors)))
        return tensors if len(tensors) > 1 else tensors[0]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]) -> Placed:
    """Put the blocks of the model on the devices in turn; one optimizer updates them all where they are."""
    model = RoundRobin(make_model().blocks(), devices)
    return model, make_optimizer(model.parameters())
