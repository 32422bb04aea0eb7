"""Hypotheses: what a formula predicts under some settings, and to how many bits that is what was seen.

A `Formula` predicts what a module, a loss or an optimizer comes to, as a function of its `Trait`s: the
constants and conventions that may be hidden in it.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.observation import GRAIN, Observation, Seen

NEEDED: Final = 20  # bits of evidence, as many as a match needs at float32
EXACT: Final = 53.0  # bits of whole numbers that are equal
# What numpy raises where a formula meets other shapes, missing parameters or nothing at all: it does not fit.
MISFIT: Final = (ArithmeticError, LookupError, TypeError, ValueError)

Settings = dict[str, Any]
What = TypeVar("What", bound=Observation)
Predicted = Mapping[str, Array]


class Trait(NamedTuple, Generic[What]):
    """A hidden constant or a convention. `cause`: the id of what it means if the sides differ in it.

    `values`: what to try on an observation, the usual first; given the settings of the traits before
    it, so that a constant can be solved for. `told`: a better id, if the two values are of a special kind.
    """

    name: str
    cause: str
    values: Callable[[What, Settings], Iterable[Any]]
    told: Callable[[Any, Any], str] = lambda reference, candidate: ""


class Formula(NamedTuple, Generic[What]):
    """`predict(observation, **settings)` gives what should have been seen, or {} where the settings do not fit."""

    predict: Callable[..., Predicted]
    traits: tuple[Trait[What], ...]


def choices(*values: Any) -> Callable[[Any, Settings], Iterable[Any]]:
    """A convention: one of these."""
    return lambda observation, settings: values


def residuals(formula: Formula[What], observation: What, settings: Settings) -> Mapping[str, float]:
    """By name, the largest difference between what was seen and what the settings predict."""
    made = predicted(formula, observation, settings)
    return {name: _apart(value.value, made.get(name)) for name, value in observation.seen.items()}


def predicted(formula: Formula[What], observation: What, settings: Settings) -> Predicted:
    """What should have been seen; nothing where the formula does not fit what was recorded."""
    try:
        with np.errstate(all="ignore"):
            return formula.predict(observation, **settings)
    except MISFIT:
        return {}


def values(trait: Trait[What], observation: What, settings: Settings) -> Iterator[Any]:
    """What to try of a trait, as far as it fits what was recorded."""
    with contextlib.suppress(*MISFIT):
        yield from trait.values(observation, settings)


def bits(values: Mapping[str, Seen], left: Mapping[str, float]) -> float:
    """To how many bits the values are reproduced, by the verdict's rule: the worst of them."""
    return min((bits_of(value, left[name]) for name, value in values.items()), default=0.0)


def bits_of(value: Seen, left: float) -> float:
    """To how many bits one value is reproduced, of which so much is left over."""
    if not value.noise:  # whole numbers, or nothing but zeros
        return 0.0 if left else EXACT
    floor = max(value.grain / GRAIN, np.finfo(np.float64).tiny)
    reached = math.log2(value.noise) - math.log2(max(left, floor)) if math.isfinite(left) else 0.0
    return max(reached, NEEDED if left <= value.grain else 0.0)


def tells(values: Mapping[str, Seen], found: Mapping[str, float], left: Mapping[str, float] | None) -> bool:
    """Whether 20 bits of what was left unexplained have vanished, somewhere; of whole numbers all that was."""
    if left is None:
        return True
    return any(
        left[name] > found[name] and left[name] >= 2.0**NEEDED * max(found[name], value.grain / GRAIN)
        for name, value in values.items()
    )


def _apart(seen: Array, predicted: Array | None) -> float:
    if predicted is None or np.shape(predicted) != seen.shape:
        return math.inf
    predicted = np.asarray(predicted)
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.subtract(seen, predicted, dtype=np.float64))
        largest = float(apart.max(initial=0.0))
        if math.isfinite(largest):
            return largest
        if not np.isfinite(seen).any():  # which is no evidence
            return math.inf
        same = (seen == predicted) | (np.isnan(seen) & np.isnan(predicted))
    return float(np.nan_to_num(np.where(same, 0.0, apart), nan=np.inf).max(initial=0.0))
