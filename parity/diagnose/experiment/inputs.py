"""Which of a module's own inputs is which canonical one, in what order of axes."""

from collections.abc import Sequence
from itertools import permutations
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment.properties import near

MOST_AXES: Final = 5  # for more there are too many orders to try


class Source(NamedTuple):
    """A canonical input, and the order in which its axes are to be put."""

    number: int
    axes: tuple[int, ...]


def source(own: Array, canonical: Sequence[Array]) -> Source | None:
    """Return the canonical input that an input is a transposed copy of; None if it is of none."""
    for number, array in enumerate(canonical):
        for axes in _orders(own.ndim) if own.ndim == array.ndim <= MOST_AXES else ():
            moved = np.transpose(array, axes)
            if moved.shape == own.shape and _same(moved, own):
                return Source(number, axes)
    return None


def _orders(count: int) -> list[tuple[int, ...]]:
    """Return all orders of axes, the given one first."""
    return list(permutations(range(count)))


def _same(one: Array, other: Array) -> bool:
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        return near(one, other)
    return one.dtype.kind != "f" and other.dtype.kind != "f" and np.array_equal(one, other)
