"""Tensors that are read block by block, by several threads, so that memory stays at a few blocks for any size."""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from parity.core.arrays import Array
from parity.trace.tensorfile import release

# Block sizes in bytes, by measurement: a single thread is fastest with buffers that fit into the L2 cache; with blocks
# that small, several threads would wait for the interpreter's lock.
BLOCK, THREAD_BLOCK = 1 << 19, 1 << 22
THREADED = 1 << 21  # elements from which on several threads are faster
THREADS = min(os.cpu_count() or 1, 4)


class Change(NamedTuple):
    """The tensor `now - before`, computed block by block and never stored as a whole."""

    now: Array
    before: Array

    @property
    def size(self) -> int:
        return self.now.size


Tensor = Array | Change


class Reduction(Protocol):
    """What a thread computes of its blocks; `spare` is a buffer of a block's size."""

    spare: Array

    def __call__(self, blocks: list[Array | None]) -> Any:
        """Return what is computed of one block of each tensor."""


R = TypeVar("R", bound=Reduction)


def stream(
    tensors: Sequence[Tensor | None], make: Callable[[int, np.dtype[Any]], R], dtype: np.dtype[Any]
) -> tuple[list[Any], list[R]]:
    """Reduce tensors of one size block by block, and return the results of all blocks and each thread's reduction.

    Large tensors are distributed over threads, block by block; numpy releases the interpreter's lock while it computes.
    `make`: makes a thread's reduction from the number of elements of a block and the dtype of the blocks.
    """
    size = max(tensor.size for tensor in tensors if tensor is not None)
    is_threaded = THREADS > 1 and size >= THREADED
    step = min((THREAD_BLOCK if is_threaded else BLOCK) // dtype.itemsize, max(size, 1))
    threads = min(THREADS, math.ceil(size / step)) if is_threaded else 1
    turns = [range(first * step, size, threads * step) for first in range(threads)]
    reductions = [make(step, dtype) for _ in turns]
    walk = partial(_walk, tensors, step, dtype)
    if threads == 1:
        return walk(turns[0], reductions[0]), reductions
    with ThreadPoolExecutor(threads) as pool:
        return list(chain.from_iterable(pool.map(walk, turns, reductions))), reductions


def _walk(
    tensors: Sequence[Tensor | None], step: int, dtype: np.dtype[Any], starts: range, reduction: Reduction
) -> list[Any]:
    """Reduce the blocks that begin at `starts`; an empty tensor is one empty block."""
    buffers = [np.empty(step, dtype) for _ in tensors]
    read = [each if isinstance(each, Change) else (each,) for each in tensors if each is not None]
    sources = [array.reshape(-1) for arrays in read for array in arrays]
    results = []
    with np.errstate(all="ignore"):  # the reductions handle numbers that are not finite
        for start in starts or (0,):
            part = slice(start, start + step)
            pairs = zip(tensors, buffers, strict=True)
            results.append(reduction([_load(tensor, part, buffer, reduction.spare) for tensor, buffer in pairs]))
            release(*(source[part] for source in sources))
    return results


def _load(tensor: Tensor | None, part: slice, buffer: Array, spare: Array) -> Array | None:
    if tensor is None:
        return None
    if not isinstance(tensor, Change):
        return _cast(tensor, part, buffer)
    now, before = _cast(tensor.now, part, buffer), _cast(tensor.before, part, spare)
    return np.subtract(now, before, out=buffer[: len(now)])


def _cast(array: Array, part: slice, buffer: Array) -> Array:
    """Return a part of an array in the buffer's dtype: a view if it has that dtype, else a copy in the buffer."""
    block = array.reshape(-1)[part]
    if block.dtype == buffer.dtype and block.flags.aligned:
        return block
    np.copyto(buffer[: len(block)], block, casting="unsafe")
    return buffer[: len(block)]
