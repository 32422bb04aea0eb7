"""Data parallelism in one process: nn.DataParallel copies the model to every device at each forward."""

import torch
from torch import nn
from torch.optim import Optimizer

from torch_impl.strategies.single import MakeModel, MakeOptimizer, evaluate, train

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device], dim: int = 0
) -> tuple[nn.Module, Optimizer]:
    """Parameters and buffers on the first device only. `dim`: the axis of the samples, which are dealt out."""
    model = make_model().to(devices[0])
    return nn.DataParallel(model, device_ids=devices, dim=dim), make_optimizer(model.parameters())
