"""The steps of Gauss and Newton's method for one number, on its own scale and on that of its logarithm."""

import math
from typing import Final

import numpy as np

from parity.core.arrays import Array

LONGEST: Final = 3.0  # step on the scale of logarithms


def added(number: float, move: float) -> float:
    """Return the number after a step on the scale of numbers."""
    return number + move


def multiplied(number: float, move: float) -> float:
    """Return the number after the same step on the scale of logarithms, of which none is longer than LONGEST."""
    return number * math.exp(min(max(move / number, -LONGEST), LONGEST)) if number else math.nan


def step_towards(here: Array | None, there: Array | None, target: Array, step: float) -> tuple[float, float]:
    """Return by how much to change a number so that, to first order, the values come nearest to the target.

    Also returned is the part of what is missing that this would take away: 0 if the number has nothing to do with it.
    """
    if here is None or there is None or not here.shape == there.shape == target.shape:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        slope = (np.float64(there) - here).ravel() / step
        rest = np.subtract(target, here, dtype=np.float64).ravel()
    known = np.isfinite(slope) & np.isfinite(rest)
    square, size = float(slope[known] @ slope[known]), float(rest[known] @ rest[known])
    if not square or not size:
        return 0.0, 0.0
    along = float(slope[known] @ rest[known])
    return along / square, along * along / (square * size)
