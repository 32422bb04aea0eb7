"""Which of a module's own inputs is which canonical one, in what order of axes; calls with the other side's inputs."""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array

NEAR: Final = 2.0**-34  # of the largest value: what is nearer is equal
MOST_AXES: Final = 5  # for more there are too many orders to try


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
    changed, is_changed = list(leaves), False
    for number, leaf in enumerate(leaves):
        if (array := floats(leaf)) is not None:
            if (match := _match(array, known)) is None:
                return None
            mine, theirs, axes = match
            changed[number] = like(np.transpose(theirs, axes), leaf)
            is_changed = is_changed or not near(mine, theirs)
    return changed if is_changed else None


def _match(own: Array, known: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, tuple[int, ...]] | None:
    """Return the pair of whose first tensor an input of floats is a transposed copy, and the order of its axes."""
    for mine, theirs in known:
        if own.ndim == mine.ndim <= MOST_AXES and mine.dtype.kind == "f":
            for axes in permutations(range(own.ndim)):
                if near(np.transpose(mine, axes), own):
                    return mine, theirs, axes
    return None


def near(mine: Array, theirs: Array) -> bool:
    """Return whether two arrays of floats are equal to rounding."""
    finite = np.isfinite(mine)
    if mine.shape != theirs.shape or not np.array_equal(finite, np.isfinite(theirs)):
        return False
    mine, theirs = np.where(finite, mine, 0.0), np.where(finite, theirs, 0.0)
    largest = max(np.abs(mine).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    return bool(np.abs(mine - theirs).max(initial=0.0) <= NEAR * largest)
