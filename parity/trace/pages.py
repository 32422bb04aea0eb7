"""Iterate over memory-mapped tensors block by block, releasing the pages that have been read.

The pages of a mapped file count towards this process's memory once they have been read, although the system could
drop them at any time. Releasing each block after use keeps a comparison's memory at a few blocks, however large the
traces are. The data are not lost: reading a released page maps it again.
"""

import mmap
from collections.abc import Iterator

import numpy as np

from parity.core.arrays import Array

BLOCK = 1 << 17  # elements per block
LEAST = mmap.PAGESIZE  # bytes; releasing a smaller tensor is not worth the system call
# Reading one page also maps the pages around it, at most a huge page; some of them may have been released before.
AROUND = 1 << 21


def blocks(*arrays: Array, size: int = BLOCK) -> Iterator[tuple[Array, ...]]:
    """Yield corresponding blocks of `size` elements of arrays of equal shape, flattened in row-major order.

    The pages of a block are released when the next one is requested.
    """
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, arrays[0].size, size):
        parts = tuple(array[start : start + size] for array in flat)
        yield parts
        release(*parts)


def equal(first: Array, second: Array) -> bool:
    """Return whether two arrays have the same shape and values, as numpy.array_equal does (NaN equals nothing)."""
    return first.shape == second.shape and all(np.array_equal(a, b) for a, b in blocks(first, second))


def release(*arrays: Array) -> None:
    """Release the memory pages of arrays that are views of a mapped file; do nothing for other arrays."""
    for array in arrays:
        if array.nbytes >= LEAST and isinstance(file := _owner(array), mmap.mmap):
            whole = np.frombuffer(file, np.uint8)
            if whole.flags.writeable:
                continue  # a private, writable mapping would lose what was written into it
            start = _address(array) - _address(whole)
            first = max(start - AROUND, 0) // mmap.PAGESIZE * mmap.PAGESIZE
            file.madvise(mmap.MADV_DONTNEED, first, min(start + array.nbytes + AROUND, whole.size) - first)


def _owner(array: Array) -> object:
    """Return the object that owns an array's memory, through any number of views."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
