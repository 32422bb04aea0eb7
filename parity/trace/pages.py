"""Tensors walked through block by block, and memory-mapped pages let go of behind.

A mapped file's pages count as this process's memory for as long as it has them, though the system could take
them at any time. Whoever walks through a large tensor releases each block behind itself, so that a comparison
holds a few blocks however large the traces are. The bytes stay where they were: looking again maps them again.
"""

import mmap
from collections.abc import Iterator

import numpy as np

from parity.core.arrays import Array

BLOCK = 1 << 17  # elements that are looked at at a time
LEAST = mmap.PAGESIZE  # bytes; the page of a smaller tensor is not worth the call
# Looking at one page maps those around it as well, which may have been let go of before: at most a huge page.
AROUND = 1 << 21


def blocks(*arrays: Array, size: int = BLOCK) -> Iterator[tuple[Array, ...]]:
    """The same `size` elements of each of these arrays of one shape, row by row; released behind."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, arrays[0].size, size):
        parts = tuple(array[start : start + size] for array in flat)
        yield parts
        release(*parts)


def equal(one: Array, other: Array) -> bool:
    """Whether two arrays have one shape and the same values, as numpy.array_equal sees it."""
    return one.shape == other.shape and all(np.array_equal(a, b) for a, b in blocks(one, other))


def release(*arrays: Array) -> None:
    """Let go of the pages below arrays that are views of a mapped file; nothing happens to others."""
    for array in arrays:
        if array.nbytes >= LEAST and isinstance(file := _owner(array), mmap.mmap):
            whole = np.frombuffer(file, np.uint8)
            if whole.flags.writeable:
                continue  # what was written into a private copy would be lost
            start = _address(array) - _address(whole)
            first = max(start - AROUND, 0) // mmap.PAGESIZE * mmap.PAGESIZE
            file.madvise(mmap.MADV_DONTNEED, first, min(start + array.nbytes + AROUND, whole.size) - first)


def _owner(array: Array) -> object:
    """What an array is a view of in the end."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
