"""Mistakes planted on purpose, by name, so that tests can demand that they are found."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch.nn import functional

Patches = Callable[[], list[mock._patch]]


def _identity_relu() -> list[mock._patch]:
    return [
        mock.patch.object(functional, "relu", lambda x, inplace=False: x),
        mock.patch.object(torch, "relu", lambda x: x),
    ]


def _rounded_linear() -> list[mock._patch]:
    linear = functional.linear

    def rounded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        product = linear(x.bfloat16(), weight.bfloat16()).to(x.dtype)
        return product if bias is None else product + bias

    return [mock.patch.object(functional, "linear", rounded)]


# Name to the patches and the only precision that they are planted at ("" for all).
FAULTS: dict[str, tuple[Patches, str]] = {
    "relu.dropped_in_float32": (_identity_relu, "float32"),
    "matmul.bfloat16_in_float32": (_rounded_linear, "float32"),
}


@contextmanager
def planted(fault: str, at: str) -> Iterator[None]:
    """The fault, if it is one of this precision, for the length of the block; none if it is ""."""
    patches, only = FAULTS[fault] if fault else (list, "")
    with ExitStack() as stack:
        if only in ("", at):
            for patch in patches():
                stack.enter_context(patch)
        yield
