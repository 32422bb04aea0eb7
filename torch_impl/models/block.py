"""A model as a chain of blocks: where it can be cut into consecutive parts."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

Tensors = torch.Tensor | tuple[torch.Tensor, ...]


class Block(NamedTuple):
    """A few modules and what they compute together.

    `forward` takes what the block before returned: one tensor, or several as arguments of their own.
    """

    modules: list[nn.Module]
    forward: Callable[..., Tensors]


class Stage(nn.Module):
    """Consecutive blocks as one module, on a device of its own."""

    def __init__(self, blocks: list[Block]):
        super().__init__()
        self.parts = nn.ModuleList(module for block in blocks for module in block.modules)
        self.blocks = blocks
        self.device = torch.device("cpu")

    def place(self, device: torch.device) -> "Stage":
        """Move it; a stage may have no parameter that would tell where it is."""
        self.device = device
        return self.to(device)

    def forward(self, *tensors: torch.Tensor) -> Tensors:
        for block in self.blocks:
            tensors = as_tuple(block.forward(*tensors))
        return tensors if len(tensors) > 1 else tensors[0]


def stages(blocks: list[Block], count: int) -> list[Stage]:
    """The blocks in `count` stages, as equal as can be; the first ones take one block more."""
    ends = np.cumsum([len(part) for part in np.array_split(range(len(blocks)), count)])
    return [Stage(blocks[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def as_tuple(tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """What a block or a stage returned, as the arguments of the next one."""
    return tensors if isinstance(tensors, tuple) else (tensors,)
