"""Solve for hidden constants: the value under which a formula comes nearest to what was recorded.

The Gauss-Newton method for one unknown, from the best of a few starting values. Residuals are divided by the noise of
their tensor, so that updates, optimizer slots and learning rates can be fitted together.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.formula import Observation, Settings

ROUNDS: Final = 20
HALVINGS: Final = 4  # how often a step that makes the residuals larger is halved
SLOW: Final = 0.8  # fraction of the sum of squares left by a step above which the iteration is given up
APART: Final = 2.0**-20  # of the largest element: what rounding leaves between an array and a multiple of it
ENOUGH: Final = 8  # values that must depend on a constant; fewer are fitted by chance


class Point(NamedTuple):
    """A value of the constant, and the residuals that it leaves."""

    value: float
    residuals: Array

    @property
    def size(self) -> float:
        """Return the sum of squares; infinite where the formula gives no finite result."""
        size = float(self.residuals @ self.residuals)
        return size if np.isfinite(size) else np.inf


def constant(
    predict: Callable[..., Any],
    observation: Observation,
    settings: Settings,
    name: str,
    starts: Iterable[float],
    among: str = "",
) -> Iterator[float]:
    """Yield the value of setting `name` under which `predict` comes nearest; nothing if too little depends on it.

    `settings`: the values of the other settings. `starts`: values to start from; the best of them is refined.
    `among`: fit only the recorded values whose names begin with this.
    """

    def at(value: float) -> Point:
        with np.errstate(all="ignore"):
            predicted = predict(observation, **{**settings, name: value})
        return Point(value, _residuals(observation, predicted, among))

    point = min(map(at, dict.fromkeys(starts)), key=lambda point: point.size)
    for _ in range(ROUNDS):
        step = _step(at, point)
        if step is None:
            return
        candidates = (at(point.value + step * 0.5**halving) for halving in range(HALVINGS))
        nearer = next((candidate for candidate in candidates if candidate.size < point.size), None)
        if nearer is None:
            break
        slow, point = nearer.size > SLOW * point.size, nearer
        if slow:
            break
    yield point.value


def scale(source: Array, target: Array) -> Iterator[float]:
    """Yield the least-squares factor from one array to another of its shape; nothing if there are too few values."""
    if source.shape == target.shape and np.count_nonzero(source) >= ENOUGH:
        yield float(np.vdot(source, target) / np.vdot(source, source))


def multiple(source: Array, target: Array) -> float | None:
    """Return the number by which an array has to be multiplied to be another; None if there is none."""
    square = float(np.vdot(source, source)) if source.shape == target.shape else 0.0
    factor = float(np.vdot(source, target)) / square if square else 0.0
    return factor if factor and is_times(source, target, factor) else None


def is_times(source: Array, target: Array, factor: float) -> bool:
    """Return whether an array is another one times a factor."""
    if source.shape != target.shape:
        return False
    return bool(np.abs(target - factor * source).max(initial=0.0) <= APART * np.abs(target).max(initial=0.0))


def norm(arrays: Iterable[Array]) -> float:
    """Return the norm of the numbers of all arrays."""
    return math.sqrt(sum(float(np.vdot(array, array)) for array in arrays))


def _residuals(observation: Observation, predicted: Any, among: str) -> Array:
    """Return the residuals of all values that the formula predicts, in units of their noise."""
    parts = [
        np.ravel((predicted[key] - value.value) / value.noise)
        for key, value in observation.seen.items()
        if key in predicted and key.startswith(among) and value.noise and np.shape(predicted[key]) == value.value.shape
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _step(at: Callable[[float], Point], point: Point) -> float | None:
    """Return the Gauss-Newton step, with a numerical derivative; None where too little depends on the value."""
    difference = 1e-4 * abs(point.value) or 1e-6
    slope = (at(point.value + difference).residuals - point.residuals) / difference
    slope = np.where(np.isfinite(slope), slope, 0.0)
    steepness = float(slope @ slope)  # 0 if all squares are too small for a float
    if np.count_nonzero(slope) < ENOUGH or not steepness or not np.isfinite(point.size):
        return None
    return -float(slope @ point.residuals) / steepness
