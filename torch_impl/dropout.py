"""Dropout by a counter-based source: a mask is computed from a key and each element's number, and never stored.

PyTorch's own masks come from a generator's state, so that no other framework, and no other layout of
the same model, can draw them again. These are the same on every device, in every process, and in
every framework: parity/core/random.py has the source in NumPy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from parity.core.random import GOLDEN32, MIX32, WORD


class Key(NamedTuple):
    """What a mask is drawn from.

    `words`: two, for the module (parity.core.random.mask_key); then the step, and the call within it.
    """

    words: tuple[int, int]
    step: int
    call: int


def dropout(x: torch.Tensor, numbers: torch.Tensor, rate: float, key: Key) -> torch.Tensor:
    """x with each element set to zero with the probability `rate`, the others scaled so that the mean stays.

    `numbers`: each element's own, as `number` counts them.
    """
    scale = 0.0 if rate == 1.0 else 1.0 / (1.0 - rate)
    factors = keep(numbers, rate, key).to(x.dtype) * torch.full((), scale, dtype=x.dtype, device=numbers.device)
    if isinstance(x, DTensor):
        factors = DTensor.from_local(factors, x.device_mesh, x.placements, shape=x.shape, stride=x.stride())
    return x * factors


def keep(numbers: torch.Tensor, rate: float, key: Key) -> torch.Tensor:
    """Which of the numbered elements stay."""
    first, second = (mix32(mix32(word + key.step) + key.call) for word in key.words)
    return mix32((numbers * GOLDEN32 + first) ^ second) >= round(rate * 2**32)


def number(x: torch.Tensor) -> torch.Tensor:
    """The elements of x counted row by row; of a DTensor those that are here, as they count in the whole."""
    if not isinstance(x, DTensor):
        return torch.arange(x.numel(), device=x.device).view(x.shape)
    shape, start = compute_local_shape_and_global_offset(x.shape, x.device_mesh, x.placements)
    return _part(shape, start, x.shape, x.to_local().device)


def mix32(x: torch.Tensor | int) -> torch.Tensor | int:
    """The lower 32 bits of x, hashed (C. Wellons' lowbias32, github.com/skeeto/hash-prospector)."""
    x = x & WORD
    x = ((x ^ (x >> 16)) * MIX32[0]) & WORD
    x = ((x ^ (x >> 15)) * MIX32[1]) & WORD
    return x ^ (x >> 16)


def _part(shape: Sequence[int], start: Sequence[int], whole: Sequence[int], device: torch.device) -> torch.Tensor:
    """Of a part that begins at `start` in a tensor of the shape `whole`."""
    numbers = torch.zeros((), dtype=torch.int64, device=device)
    for size, first, of in zip(shape, start, whole, strict=True):
        numbers = numbers[..., None] * of + torch.arange(first, first + size, device=device)
    return numbers
