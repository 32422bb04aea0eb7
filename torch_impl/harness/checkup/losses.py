"""Calls of a loss function, with what went in: shapes and types say what is wrong with them."""

from typing import Any

import torch

from parity.checkup.evidence import LossCall, Step
from torch_impl.harness.checkup import source
from torch_impl.harness.checkup.calls import Calls
from torch_impl.harness.checkup.origins import Origins

LOSSES = frozenset(
    (
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "nll_loss", "kl_div"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss", "soft_margin_loss"),
    )
)
RESHAPES = ("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward", "AliasBackward", "CloneBackward")
RESHAPES += ("UnsqueezeBackward", "SqueezeBackward", "ToCopyBackward", "AddBackward")  # a linear's bias may be added
LINEAR = ("AddmmBackward", "MmBackward", "LinearBackward", "BmmBackward", "BaddbmmBackward")


def note(step: Step, function: str, args: tuple, kwargs: dict, result: Any, calls: Calls, origins: Origins) -> None:
    """A function was called; if it is a loss, the step has it."""
    if function not in LOSSES:
        return
    given = [*args, *(kwargs[name] for name in ("input", "target") if name in kwargs)]
    step.losses.append(
        LossCall(
            function=function,
            input=origins.describe(given[0]),
            target=origins.describe(given[1]),
            place=calls.place(source.line()),
            straight=_is_straight(given[0]),
        )
    )
    origins.note(result, "loss")


def _is_straight(tensor: torch.Tensor) -> bool:
    """Whether a linear layer made it, reshaped at most."""
    node = tensor.grad_fn
    while node is not None and node.name().startswith(RESHAPES):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(LINEAR)
