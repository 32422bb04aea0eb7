"""The precision of a run: the dtype of its parameters, and mixed precision by torch.autocast."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@contextmanager
def policy(at: str) -> Iterator[None]:
    """New float tensors, and so new models, are float64 or float32 within the block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if at == "float64" else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def cast(model: nn.Module, loss: Callable[..., Any], at: str) -> Callable[..., Any]:
    """Forward and loss under autocast, as its documentation asks (backward outside). Returns the loss."""
    if at not in MIXED:
        return loss
    autocast = torch.autocast("cpu", dtype=MIXED[at])
    model.forward = autocast(model.forward)
    return autocast(loss)
