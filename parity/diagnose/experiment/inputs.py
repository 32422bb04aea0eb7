"""Which of a module's own inputs is which canonical one, in what order of axes; calls with the other side's inputs."""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, Final, NamedTuple

import numpy as np

from parity.core.arrays import Array

NEAR: Final = 2.0**-34  # of the largest value: what is nearer is equal
MOST_AXES: Final = 5  # for more there are too many orders to try


class Source(NamedTuple):
    """A canonical input, and the order in which its axes are to be put."""

    number: int
    axes: tuple[int, ...]


def source(own: Array, canonical: Sequence[Array]) -> Source | None:
    """Return the canonical input that an input is a transposed copy of; None if it is of none."""
    for number, array in enumerate(canonical):
        for axes in permutations(range(own.ndim)) if own.ndim == array.ndim <= MOST_AXES else ():
            moved = np.transpose(array, axes)
            if moved.shape == own.shape and _same(moved, own):
                return Source(number, axes)
    return None


def exchanged(
    leaves: Sequence[Any],
    known: Sequence[tuple[Array, Array]],
    floats: Callable[[Any], Array | None],
    like: Callable[[Array, Any], Any],
) -> list[Any] | None:
    """Return the arguments of a call with the other side's tensors in place of its own.

    None if a tensor of floats is none of those known, or if all are the same on both sides.

    Args:
        leaves: the arguments, taken apart.
        known: pairs of a tensor of this side and the other side's, in torch's axes.
        floats: returns the numbers of a tensor of floats; None of anything else.
        like: returns a tensor of an array's numbers, of the type of another tensor.
    """
    own, changed, is_changed = [mine for mine, _ in known], list(leaves), False
    for number, leaf in enumerate(leaves):
        if (array := floats(leaf)) is not None:
            if (canonical := source(array, own)) is None:
                return None
            mine, theirs = known[canonical.number]
            changed[number] = like(np.transpose(theirs, canonical.axes), leaf)
            is_changed = is_changed or not near(mine, theirs)
    return changed if is_changed else None


def near(mine: Array, theirs: Array) -> bool:
    """Return whether two arrays of floats are equal to rounding."""
    finite = np.isfinite(mine)
    if mine.shape != theirs.shape or not np.array_equal(finite, np.isfinite(theirs)):
        return False
    mine, theirs = np.where(finite, mine, 0.0), np.where(finite, theirs, 0.0)
    largest = max(np.abs(mine).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    return bool(np.abs(mine - theirs).max(initial=0.0) <= NEAR * largest)


def _same(one: Array, other: Array) -> bool:
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        return near(one, other)
    return one.dtype.kind != "f" and other.dtype.kind != "f" and np.array_equal(one, other)
