"""Float64 that a program makes its default: its low run has float32 in its place, so that both precisions are run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from parity.core.patches import applied, around


def defaults() -> AbstractContextManager[None]:
    """Return a context in which a program that makes float64 its default has float32, also of arrays from NumPy."""
    return applied(_lowering())


def _lowering() -> Iterator[AbstractContextManager]:
    is_wide = False

    def set_default_dtype(default: Callable[[torch.dtype], None], d: torch.dtype) -> None:
        nonlocal is_wide
        is_wide = d == torch.float64
        default(torch.float32 if is_wide else d)

    def from_array(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = function(*args, **kwargs)
        return tensor.float() if is_wide and tensor.dtype == torch.float64 else tensor

    yield around(torch, "set_default_dtype", set_default_dtype)
    for name in ("tensor", "as_tensor", "from_numpy"):
        yield around(torch, name, from_array)
