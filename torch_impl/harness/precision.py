"""The precision of a run: the dtype of its parameters, and mixed precision by torch.autocast."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# Float32 is float32: TF32 keeps 10 bits of its 23. By default torch allows it in convolutions on GPUs.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False

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


def autocast(at: str, device: str) -> torch.autocast:
    """What a forward and a loss run under, as its documentation asks: the backward pass is outside."""
    return torch.autocast(device, dtype=MIXED.get(at), enabled=at in MIXED)


def cast(model: nn.Module, at: str, device: str) -> None:
    """Let the model, or its blocks one by one, run under autocast."""
    if at not in MIXED:
        return
    plain, mixed = type(model), autocast(at, device)

    def blocks(self: nn.Module) -> list:
        return [block._replace(forward=mixed(block.forward)) for block in plain.blocks(self)]

    # In the class, so that the copies which nn.DataParallel makes have it too.
    model.__class__ = type(plain.__name__, (plain,), {"forward": mixed(plain.forward), "blocks": blocks})
