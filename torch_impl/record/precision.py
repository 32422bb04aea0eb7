"""The precision of a run: the dtype of its parameters, and mixed precision by torch.autocast."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# Compute float32 in full: TF32 keeps 10 of its 23 bits, and torch uses it for convolutions on GPUs by default.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False

MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@contextmanager
def policy(at: str) -> Iterator[None]:
    """Make new float tensors, and so new models, float64 or float32 within the block."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if at == "float64" else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def autocast(at: str, device: str) -> torch.autocast:
    """Return the autocast context of a forward pass and its loss; it does nothing unless `at` is a half precision.

    As torch's documentation asks, it must not include the backward pass.
    """
    return torch.autocast(device, dtype=MIXED.get(at), enabled=at in MIXED)


def cast(model: nn.Module, at: str, device: str) -> None:
    """Make the model's forward, and those of its blocks, run under autocast."""
    if at not in MIXED:
        return
    plain, mixed = type(model), autocast(at, device)

    def blocks(self: nn.Module) -> list:
        return [block._replace(forward=mixed(block.forward)) for block in plain.blocks(self)]

    # Patch the class, not the object, so that nn.DataParallel's copies have it too.
    model.__class__ = type(plain.__name__, (plain,), {"forward": mixed(plain.forward), "blocks": blocks})
