"""Hidden constants, solved for: the value under which a formula comes nearest to what was seen.

Gauss and Newton's method on one unknown, from the best of a few starts. Every value counts by its own
noise, so that updates, slots and learning rates can be looked at together.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.observation import Observation

ROUNDS: Final = 20
HALVINGS: Final = 4  # of a step that leads away
SLOW: Final = 0.8  # of a sum of squares left by a step: it does not lead to zero
ENOUGH: Final = 8  # values that depend on a constant; fewer are fitted by chance

Settings = dict[str, Any]


class Point(NamedTuple):
    """A value of the constant, and what it leaves."""

    value: float
    residuals: Array

    @property
    def size(self) -> float:
        """The sum of squares; infinite where a formula makes no sense."""
        size = float(self.residuals @ self.residuals)
        return size if np.isfinite(size) else np.inf


def constant(
    predict: Callable[..., Any],
    observation: Observation,
    settings: Settings,
    name: str,
    starts: Iterable[float],
    among: str = "",
) -> float | None:
    """The setting `name` under which `predict` reproduces most; None where too little depends on it.

    `among`: look only at what was seen under names that begin so.
    """

    def at(value: float) -> Point:
        with np.errstate(all="ignore"):
            predicted = predict(observation, **{**settings, name: value})
        return Point(value, _residuals(observation, predicted, among))

    point = min(map(at, dict.fromkeys(starts)), key=lambda point: point.size)
    for _ in range(ROUNDS):
        step = _step(at, point)
        if step is None:
            return None
        nearer = _nearer(at, point, step)
        if nearer is None:
            break
        slow, point = nearer.size > SLOW * point.size, nearer
        if slow:
            break
    return point.value


def scale(made: Array, wanted: Array) -> float | None:
    """The factor from one array to another of its shape; None where too few values tell."""
    if made.shape != wanted.shape or np.count_nonzero(made) < ENOUGH:
        return None
    return float(np.vdot(made, wanted) / np.vdot(made, made))


def decades(smallest: int, largest: int) -> list[float]:
    """Powers of ten and three times them."""
    return [factor * 10.0**power for power, factor in itertools.product(range(smallest, largest), (1.0, 3.0))]


def _residuals(observation: Observation, predicted: Any, among: str) -> Array:
    parts = [
        np.ravel((predicted[key] - value.value) / value.noise)
        for key, value in observation.seen.items()
        if key in predicted and key.startswith(among) and value.noise and np.shape(predicted[key]) == value.value.shape
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _step(at: Callable[[float], Point], point: Point) -> float | None:
    """Where the tangent leads, which a small difference stands for; None where too little depends on the value."""
    apart = 1e-4 * abs(point.value) or 1e-6
    slope = (at(point.value + apart).residuals - point.residuals) / apart
    slope = np.where(np.isfinite(slope), slope, 0.0)
    if np.count_nonzero(slope) < ENOUGH or not np.isfinite(point.size):
        return None
    return -float(slope @ point.residuals) / float(slope @ slope)


def _nearer(at: Callable[[float], Point], point: Point, step: float) -> Point | None:
    """The point after a step, which is halved until it leads nearer."""
    for halving in range(HALVINGS):
        there = at(point.value + step * 0.5**halving)
        if there.size < point.size:
            return there
    return None
