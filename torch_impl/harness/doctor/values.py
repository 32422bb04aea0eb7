"""The numbers in a tensor, looked at without being seen doing it: by no mode, no hook, no random number."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from torch_impl.harness.virtual_devices import VirtualTensor

State = Literal["none", "zero", "finite", "not_finite"]


@contextmanager
def quiet() -> Iterator[None]:
    """What happens within the block is not the user's."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def real(tensor: torch.Tensor) -> torch.Tensor:
    """What holds the numbers: of a virtual device, of this rank, of a sparse tensor."""
    if isinstance(tensor, VirtualTensor):
        return real(tensor.inner)
    if isinstance(tensor, DTensor):
        return real(tensor.to_local())
    return tensor.detach()._values() if tensor.layout == torch.sparse_coo else tensor


def state(tensor: torch.Tensor | None) -> State:
    """What a gradient is."""
    if tensor is None:
        return "none"
    smallest, largest = extent([tensor]) if tensor.numel() else (0.0, 0.0)
    if not math.isfinite(smallest) or not math.isfinite(largest):
        return "not_finite"
    return "finite" if smallest or largest else "zero"


def are_there(tensor: torch.Tensor) -> bool:
    """Whether it has numbers that can be looked at.

    A wrapper has none of its own (a collective's result before it is waited for). Where a library works out a shape,
    its tensors say "cpu" and hold nothing.
    """
    with quiet():
        numbers = real(tensor)
        return type(numbers) in (torch.Tensor, torch.nn.Parameter) and numbers.untyped_storage().device.type != "meta"


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all of its numbers are. Their sum says so at once, but for one that overflows."""
    with quiet():
        numbers = real(tensor)
        return math.isfinite(numbers.sum()) or bool(numbers.isfinite().all())


def extent(tensors: list[torch.Tensor]) -> tuple[float, float] | None:
    """The smallest and the largest number in them, of which there are some; NaN if there is one."""
    if not tensors:
        return None
    with quiet():
        pairs = [torch.aminmax(real(tensor)) for tensor in tensors]
        lows, highs = [float(low) for low, _ in pairs], [float(high) for _, high in pairs]
    return (math.nan, math.nan) if any(map(math.isnan, lows)) else (min(lows), max(highs))


def root_mean_square(tensors: list[torch.Tensor]) -> float:
    """Of all numbers in them together."""
    with quiet():
        squares = [float(torch.linalg.vector_norm(real(tensor), dtype=_wide(tensor))) ** 2 for tensor in tensors]
    return math.sqrt(sum(squares) / max(sum(tensor.numel() for tensor in tensors), 1))


def root_mean_squares(model: torch.nn.Module) -> list[float]:
    """Of each parameter that is to be trained, and has its shape."""
    trained = (each for each in model.parameters() if each.requires_grad and not is_lazy(each))
    return [root_mean_square([parameter]) for parameter in trained]


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def storage(tensor: torch.Tensor) -> int:
    """Where its numbers are, the same for all views of it."""
    with quiet():
        return real(tensor).untyped_storage()._cdata
