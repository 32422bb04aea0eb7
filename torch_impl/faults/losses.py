"""Faults of losses."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from torch_impl import losses
from torch_impl.faults.mutate import Patches, replaced

Loss = Callable[..., torch.Tensor]


def _summed(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(outputs, target, "sum")


def _sum_of_each_sample(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(outputs, target, "sum") / len(outputs)


def _broadcast(loss: Loss) -> Loss:
    """Compare outputs (N, 1) with a target (N,), which broadcasts to (N, N)."""
    return lambda outputs, target, reduction="mean": (outputs - target.squeeze(-1)).square().mean()


def _absolute(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": functional.l1_loss(outputs, target)


def _softmax_before(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(outputs.softmax(-1), target, reduction)


def _with(**options: Any) -> Patches:
    """Call torch's cross_entropy with further options."""

    def change(cross_entropy: Loss) -> Loss:
        return lambda outputs, target, reduction="mean": cross_entropy(outputs, target, reduction=reduction, **options)

    return replaced(functional, "cross_entropy", change)


FAULTS: dict[str, Patches] = {
    "loss.sum": replaced(losses, "cross_entropy", _summed),
    "loss.kind": replaced(losses, "mse", _absolute),
    "mse.reduction": replaced(losses, "mse", _sum_of_each_sample),
    "mse.broadcast": replaced(losses, "mse", _broadcast),
    "cross_entropy.double_softmax": replaced(losses, "cross_entropy", _softmax_before),
    "cross_entropy.ignored": _with(ignore_index=0),
    "cross_entropy.label_smoothing": _with(label_smoothing=0.1),
}
