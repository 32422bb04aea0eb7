"""Dropout with a counter-based random source, so that both frameworks draw the same masks.

PyTorch's own masks come from a generator's state, which no other framework, and no other device layout of the same
model, can reproduce. Here each element's bit is a hash of a key and of the element's number in its tensor; it is the
same on every device, in every process and in every framework. parity/core/random.py holds the same source in NumPy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from parity.core.random import GOLDEN32, MIX32, WORD
from torch_impl.instruments.structure import is_dtensor


class Key(NamedTuple):
    """What identifies a mask: two words (parity.core.random.mask_key), the training step, the module's call in it."""

    words: tuple[int, int]
    step: int
    call: int


def dropout(x: torch.Tensor, numbers: torch.Tensor, rate: float, key: Key) -> torch.Tensor:
    """Set each element of x to zero with probability `rate`, and scale the others by 1 / (1 - rate).

    `numbers` identifies the elements, as `number` returns it. A DTensor stays a DTensor; only its local part is
    touched.
    """
    scale = 0.0 if rate == 1.0 else 1.0 / (1.0 - rate)
    factors = keep(numbers, rate, key).to(x.dtype) * torch.full((), scale, dtype=x.dtype, device=numbers.device)
    if is_dtensor(x):
        factors = type(x).from_local(factors, x.device_mesh, x.placements, shape=x.shape, stride=x.stride())
    return x * factors


def keep(numbers: torch.Tensor, rate: float, key: Key) -> torch.Tensor:
    """Return which of the numbered elements are kept, as booleans."""
    return words(numbers, key) >= round(rate * 2**32)


def words(numbers: torch.Tensor, key: Key) -> torch.Tensor:
    """Return 32 random bits for each number, in int64."""
    first, second = (mix32(mix32(word + key.step) + key.call) for word in key.words)
    return mix32((numbers * GOLDEN32 + first) ^ second)


def number(x: torch.Tensor) -> torch.Tensor:
    """Enumerate the elements of x row by row, from 0; return int64 of x's shape.

    For a DTensor: the numbers of the local elements, counted in the whole tensor.
    """
    if not is_dtensor(x):
        return torch.arange(x.numel(), device=x.device).view(x.shape)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset  # takes long to import

    shape, start = compute_local_shape_and_global_offset(x.shape, x.device_mesh, x.placements)
    return _part(shape, start, x.shape, x.to_local().device)


def mix32(x: torch.Tensor | int) -> torch.Tensor | int:
    """Hash the lower 32 bits of x (C. Wellons's lowbias32, github.com/skeeto/hash-prospector)."""
    x = x & WORD
    x = ((x ^ (x >> 16)) * MIX32[0]) & WORD
    x = ((x ^ (x >> 15)) * MIX32[1]) & WORD
    return x ^ (x >> 16)


def _part(shape: Sequence[int], start: Sequence[int], whole: Sequence[int], device: torch.device) -> torch.Tensor:
    """Enumerate the elements of a part that begins at the indices `start` of a tensor of shape `whole`."""
    numbers = torch.zeros((), dtype=torch.int64, device=device)
    for size, first, extent in zip(shape, start, whole, strict=True):
        numbers = numbers[..., None] * extent + torch.arange(first, first + size, device=device)
    return numbers
