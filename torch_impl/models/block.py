"""Blocks and stages: a model as a chain of steps that can be cut into consecutive parts for model parallelism."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

Tensors = torch.Tensor | tuple[torch.Tensor, ...]


class Block(NamedTuple):
    """One step of a model: a few modules, and the function that applies them.

    `forward` takes what the previous block returned: one tensor, or the members of a tuple as separate arguments.
    """

    modules: list[nn.Module]
    forward: Callable[..., Tensors]


class Stage(nn.Module):
    """Consecutive blocks as one module that lives on one device."""

    def __init__(self, blocks: list[Block]):
        super().__init__()
        self.parts = nn.ModuleList(module for block in blocks for module in block.modules)
        self.blocks = blocks
        self.device = torch.device("cpu")

    def place(self, device: torch.device) -> "Stage":
        """Move the stage to `device` and return it.

        The device is stored as well, because a stage without parameters (a ReLU alone) could not tell where it is.
        """
        self.device = device
        return self.to(device)

    def forward(self, *tensors: torch.Tensor) -> Tensors:
        for block in self.blocks:
            tensors = as_tuple(block.forward(*tensors))
        return tensors if len(tensors) > 1 else tensors[0]


def stages(blocks: list[Block], count: int, sizes: Sequence[int] = ()) -> list[Stage]:
    """Cut the blocks into `count` stages of `sizes` blocks each.

    By default they are of nearly equal length, and the first stages get the extra blocks. Raises ValueError if the
    sizes do not add up to the number of blocks.
    """
    if sizes and sum(sizes) != len(blocks):
        raise ValueError(f"the model has {len(blocks)} blocks, received stages of {list(sizes)}")
    ends = np.cumsum(sizes or [len(part) for part in np.array_split(range(len(blocks)), count)])
    return [Stage(blocks[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def as_tuple(tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """Return the output of a block or stage as a tuple, ready to be the arguments of the next one."""
    return tensors if isinstance(tensors, tuple) else (tensors,)
