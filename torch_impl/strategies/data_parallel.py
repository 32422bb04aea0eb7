"""Data parallelism in one process: torch.nn.DataParallel.

At each forward pass it copies the model to every device, splits the batch, and gathers the outputs on the first device;
the gradients are summed there.
"""

import torch
from torch import nn

from torch_impl.strategies.single import MakeModel, MakeOptimizer, Placed, evaluate, train

__all__ = ["evaluate", "place", "train"]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device], dim: int = 0) -> Placed:
    """Put the model on the first device, in nn.DataParallel, which splits inputs along `dim`, that of the samples."""
    model = make_model().to(devices[0])
    return nn.DataParallel(model, device_ids=devices, dim=dim), make_optimizer(model.parameters())
