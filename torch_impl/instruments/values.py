"""Reads the numbers in tensors unnoticed: no mode or hook sees it, and no random number is drawn.

Where the numbers of a tensor are depends on its kind: it may be virtual, sparse, or a DTensor.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch.nn.parameter import is_lazy

from parity.doctor.evidence import Numbers
from torch_impl.instruments.structure import is_dtensor
from torch_impl.instruments.virtual_devices import VirtualTensor

State = Literal["none", "zero", "finite", "not_finite"]
VALUED = ("finite", "not_finite")
BLOCK = 2**20  # elements that are read at once as float64


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what runs within the block from being observed as the user's."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that holds the numbers: of a virtual device, of this rank's shard, of a sparse tensor."""
    if isinstance(tensor, VirtualTensor):
        return real(tensor.inner)
    if is_dtensor(tensor):
        return real(tensor.to_local())
    return tensor.detach()._values() if tensor.layout == torch.sparse_coo else tensor


def state(tensor: torch.Tensor | None) -> State:
    """Return the state of a gradient."""
    if tensor is None:
        return "none"
    smallest, largest = extent([tensor]) if tensor.numel() else (0.0, 0.0)
    if not math.isfinite(smallest) or not math.isfinite(largest):
        return "not_finite"
    return "finite" if smallest or largest else "zero"


def are_there(tensor: torch.Tensor) -> bool:
    """Return whether the tensor has numbers that can be read.

    A wrapper has none of its own (a collective's result before it is waited for). Fake tensors, by which libraries
    infer shapes, say "cpu" but hold nothing.
    """
    with quiet():
        numbers = real(tensor)
        return type(numbers) in (torch.Tensor, torch.nn.Parameter) and numbers.untyped_storage().device.type != "meta"


def is_finite(tensor: torch.Tensor) -> bool:
    """Return whether all numbers are finite; their sum tells at once, except when it overflows."""
    with quiet():
        numbers = real(tensor)
        return math.isfinite(numbers.sum()) or bool(numbers.isfinite().all())


def extent(tensors: list[torch.Tensor]) -> tuple[float, float] | None:
    """Return the smallest and the largest number in all tensors; NaN for both if there is one."""
    if not tensors:
        return None
    with quiet():
        pairs = [torch.aminmax(real(tensor)) for tensor in tensors]
        lows, highs = [float(low) for low, _ in pairs], [float(high) for _, high in pairs]
    return (math.nan, math.nan) if any(map(math.isnan, lows)) else (min(lows), max(highs))


def root_mean_square(tensors: list[torch.Tensor]) -> float:
    """Return the root mean square of all numbers in these tensors together."""
    with quiet():
        wide = [torch.complex128 if tensor.is_complex() else torch.float64 for tensor in tensors]
        pairs = zip(tensors, wide, strict=True)
        squares = [float(torch.linalg.vector_norm(real(tensor), dtype=dtype)) ** 2 for tensor, dtype in pairs]
    return math.sqrt(sum(squares) / max(sum(tensor.numel() for tensor in tensors), 1))


def root_mean_squares(model: torch.nn.Module) -> list[float]:
    """Return the root mean square of each trainable parameter that has a shape."""
    trained = (candidate for candidate in model.parameters() if candidate.requires_grad and not is_lazy(candidate))
    return [root_mean_square([parameter]) for parameter in trained]


def numbers(tensor: torch.Tensor) -> Numbers:
    """Return what another rank can compare with its own tensor."""
    with quiet():
        flat = real(tensor).reshape(-1)
        flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
        norm = float(torch.linalg.vector_norm(flat, dtype=torch.float64))
        weights = torch.cos(torch.arange(1, min(len(flat), BLOCK) + 1, dtype=torch.float64, device=flat.device))
        # The factor makes the weights of the blocks differ from each other.
        blocks = enumerate(flat.split(BLOCK))
        marks = [float(block.double() @ weights[: len(block)]) * math.cos(n) for n, block in blocks]
        constant = len(flat) > 0 and bool((flat == flat[0]).all())
    return Numbers(size=len(flat), norm=norm, mark=sum(marks), constant=constant)


def address(tensor: torch.Tensor) -> int:
    """Return where in memory the tensor's numbers begin."""
    with quiet():
        return real(tensor).data_ptr()


def storage(tensor: torch.Tensor) -> int:
    """Return an identifier of the tensor's memory, the same for all its views."""
    with quiet():
        return real(tensor).untyped_storage()._cdata
