"""The statistics of a diverged tensor that the report prints: where it differs most, and each side's values."""

import numpy as np

from parity.core.arrays import Array
from parity.results import Side
from parity.trace.pages import blocks
from parity.verdict.stream import BLOCK


def furthest(one: Array, other: Array, magnitude: float = np.inf) -> list[int]:
    """Return the index of the largest difference between two arrays of equal shape; [] if they are empty.

    A difference that is NaN counts as infinite. `magnitude`: ignore elements larger than this.
    """
    largest, place, start = -1.0, 0, 0
    for parts in blocks(one, other, size=BLOCK):
        a, b = (part.astype(np.float64) for part in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            same |= np.fmax(np.abs(a), np.abs(b)) > magnitude
            apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))
        if apart.max() > largest:
            largest, place = float(apart.max()), start + int(apart.argmax())
        start += len(a)
    return [int(i) for i in np.unravel_index(place, one.shape)] if one.size else []


def describe(array: Array, index: list[int] | None) -> Side:
    """Return shape and dtype, minimum, maximum and mean of the finite values, and the value at `index`."""
    side = Side(shape=list(array.shape), dtype=str(array.dtype))
    smallest, largest, total, count = np.inf, -np.inf, 0.0, 0
    for (part,) in blocks(array, size=BLOCK):
        block = part.astype(np.float64)
        block = block[np.isfinite(block)]
        if block.size:
            smallest, largest = min(smallest, float(block.min())), max(largest, float(block.max()))
            total, count = total + float(block.sum()), count + block.size
    if count:
        side.smallest, side.largest, side.mean = smallest, largest, total / count
    value = float(array[tuple(index)]) if index is not None and array.size else np.nan
    side.value = value if np.isfinite(value) else None
    return side
