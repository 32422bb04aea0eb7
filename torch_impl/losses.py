"""The losses, as functions of outputs and target that give a scalar."""

import functools
from collections.abc import Callable

import torch
from torch.nn import functional

from parity.config import schema

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def build(config: schema.Loss) -> Loss:
    """The loss that a config describes."""
    return functools.partial({"mse": mse, "cross_entropy": cross_entropy}[config.kind], reduction=config.reduction)


def mse(outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Squared error over all elements; both of one shape."""
    return functional.mse_loss(outputs, target, reduction=reduction)


def cross_entropy(outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Cross entropy from logits (..., classes) and class ids (...)."""
    # torch expects the classes on axis 1, which would be the batch of a sequence-first model.
    return functional.cross_entropy(outputs.flatten(0, -2), target.flatten(), reduction=reduction)
