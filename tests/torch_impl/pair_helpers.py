"""A part of a user's model that stands in a file without a module."""

import torch
from torch.nn.functional import dropout as drop


def helper(x: torch.Tensor, training: bool) -> torch.Tensor:
    return drop(x, 0.5, training)
