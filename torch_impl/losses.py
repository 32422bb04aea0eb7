"""The losses: functions of a model's outputs and a target that return a scalar."""

import functools
from collections.abc import Callable

import torch
from torch.nn import functional

from parity.config import schema

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def build(config: schema.Loss) -> Loss:
    """Return the loss function that `config` describes."""
    return functools.partial({"mse": mse, "cross_entropy": cross_entropy}[config.kind], reduction=config.reduction)


def mse(outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Return the squared error, reduced over all elements; outputs and target have the same shape."""
    return functional.mse_loss(outputs, target, reduction=reduction)


def cross_entropy(outputs: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Return the cross entropy of logits (..., classes) with class ids (...)."""
    # torch expects the classes on axis 1, which is the batch axis of a sequence-first model: hence the flattening.
    return functional.cross_entropy(outputs.flatten(0, -2), target.flatten(), reduction=reduction)
