"""Formulas as hypotheses: what they predict under some settings, and to how many bits that is what was recorded.

A `Formula` computes the result of a module, a loss or an optimizer as a function of its `Trait`s: the constants and
conventions that a trace does not record, such as an epsilon or the side that padding goes to. It is held against an
observation: what one side recorded of one computation, inputs and result. Each topic (a layer, the loss, the
optimizer) defines its own beside its formula. All arrays are float64 (integers for token ids and class ids) in
canonical form: PyTorch's names, axes and orientations.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from parity.core.arrays import Array
from parity.core.precision import ROUNDOFF

GRAIN = 8  # float64 roundoffs of the largest value by which a recomputed value may differ
SUBPRECISION: Final = 2.0  # bits of evidence at which what is left is smaller than float32 can see
NEEDED: Final = 20  # bits of evidence, the same threshold as for a match at float32
EXACT: Final = 53.0  # bits credited to integers that are equal
UNSET: Final[Any] = object()  # the setting of a trait that has no value to try; no formula is asked with one
UNUSED: Final = "unused"  # the setting of a trait that makes no difference under those before it
Settings = dict[str, Any]


class Seen(NamedTuple):
    """A recorded value, and how precisely it is known."""

    value: Array  # the value in the high run
    noise: float  # how far the side's low run was from it, at least a float32 roundoff of its largest value
    grain: float  # a few float64 roundoffs of it: a formula that comes this near has reproduced the value


class Observation(Protocol):
    """What all observations have in common."""

    @property
    def seen(self) -> Mapping[str, Seen]:
        """Return the values that a formula has to reproduce, by name."""


def seen(high: Array, low: Array | None = None, stored: float = 0.0) -> Seen:
    """Return a value of the high run as evidence.

    `low`: the same value in the low run. `stored`: the largest magnitude of what the value was computed from, if
    larger: the roundoff of a small difference of large numbers is that of the large ones.
    """
    high = np.asarray(high)
    if not np.issubdtype(high.dtype, np.floating):
        return Seen(high, 0.0, 0.0)
    scale = largest(high)
    noise = ROUNDOFF["float32"] * scale
    if low is not None and low.shape == high.shape and high.size:
        differences = np.abs(low.astype(np.float64) - high)
        noise = max(noise, float(differences[np.isfinite(differences)].max(initial=0.0)))
    return Seen(high, noise, GRAIN * ROUNDOFF["float64"] * max(scale, stored))


def largest(array: Array) -> float:
    """Return the largest finite magnitude in an array, 0 if it has none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


Observed = TypeVar("Observed", bound=Observation)


class NotApplicable(Exception):  # noqa: N818 - nothing went wrong
    """What a formula or a trait raises where it does not fit: another shape, a missing parameter, an odd value.

    The search then goes on with the next settings. Any other exception is a mistake in the formula.
    """


class Trait(NamedTuple, Generic[Observed]):
    """A constant or convention that is hidden in a module, a loss or an optimizer."""

    name: str  # the parameter of the formula that it sets
    cause: str  # the id to report if the sides differ in it
    # Gives the values to try on an observation, the usual one first. It receives the settings of the traits before it,
    # so that a constant can be solved for; one that has no value to try is UNSET. It may raise NotApplicable.
    values: Callable[[Observed, Settings], Iterable[Any]]
    # Gives a more specific id for a pair of values (the reference's, the candidate's), or "".
    specific_cause: Callable[[Any, Any], str] = lambda reference, candidate: ""


class Formula(NamedTuple, Generic[Observed]):
    """A function of hidden settings that predicts what a trace must have recorded."""

    # `predict(observation, **settings)` returns the predicted values by name. It raises NotApplicable where the
    # settings do not fit.
    predict: Callable[..., Mapping[str, Array]]
    traits: tuple[Trait[Observed], ...]  # the hidden settings
    # Raises NotApplicable if an observation has not the shapes and parameters that `predict` and the traits rely on.
    # They are called only after it.
    check: Callable[[Observed], None] = lambda observation: None
    # Whether the settings say alone what is computed of what was recorded before. Then settings that reproduce both
    # sides are those of both, and no difference.
    is_function: bool = False


def require(condition: bool, need: str) -> None:
    """Raise NotApplicable unless the condition holds; `need` says what the formula needs."""
    if not condition:
        raise NotApplicable(f"needs {need}")


def choices(*values: Any) -> Callable[[Any, Settings], Iterable[Any]]:
    """Return the `values` of a trait that always tries the given values."""
    return lambda observation, settings: values


def choices_if(applies: Callable[[Any], bool], usual: Any, *others: Any) -> Callable[[Any, Settings], Iterable[Any]]:
    """Return the `values` of a trait that tries `others` only on the observations for which `applies` holds."""
    return lambda observation, settings: (usual, *others) if applies(observation) else (usual,)


def usually(usual: Callable[[Any], Any], *values: Any) -> Callable[[Any, Settings], Iterable[Any]]:
    """Return the `values` of a trait that tries what is usual for an observation, then the given values."""
    return lambda observation, settings: dict.fromkeys((usual(observation), *values))


def residuals(formula: Formula[Observed], observation: Observed, settings: Settings) -> Mapping[str, float]:
    """Return, by name, the largest difference between what was recorded and what the settings predict."""
    prediction = predicted(formula, observation, settings)
    # NaN everywhere fits any formula that fails, so it is no evidence.
    return {
        name: largest_difference(value.value, prediction.get(name), needs_finite=True)
        for name, value in observation.seen.items()
    }


def predicted(formula: Formula[Observed], observation: Observed, settings: Settings) -> Mapping[str, Array]:
    """Return what should have been recorded, or {} where the formula does not fit the observation."""
    if any(setting is UNSET for setting in settings.values()):
        return {}
    try:
        with np.errstate(all="ignore"):
            formula.check(observation)
            return formula.predict(observation, **settings)
    except NotApplicable:
        return {}


def values(
    formula: Formula[Observed], trait: Trait[Observed], observation: Observed, settings: Settings
) -> Iterator[Any]:
    """Yield the values of a formula's trait to try, none where it does not fit the observation."""
    with contextlib.suppress(NotApplicable):
        formula.check(observation)
        yield from trait.values(observation, settings)


def bits(values: Mapping[str, Seen], left: Mapping[str, float]) -> float:
    """Return to how many bits the values are reproduced: the worst of them, by the verdict's rule."""
    return min((bits_of(value, left[name]) for name, value in values.items()), default=0.0)


def bits_of(value: Seen, left: float) -> float:
    """Return to how many bits a value is reproduced if it is missed by `left` at most."""
    if not value.noise:  # integers, or nothing but zeros: equal or not
        return 0.0 if left else EXACT
    floor = max(value.grain / GRAIN, np.finfo(np.float64).tiny)
    reached = math.log2(value.noise) - math.log2(max(left, floor)) if math.isfinite(left) else 0.0
    return min(max(reached, NEEDED if left <= value.grain else 0.0), EXACT)


def reproduced_bits(formula: Formula[Observed], observation: Observed, settings: Settings) -> float:
    """Return to how many bits settings reproduce an observation."""
    return bits(observation.seen, residuals(formula, observation, settings))


def is_conclusive(values: Mapping[str, Seen], remaining: Mapping[str, float], left: Mapping[str, float] | None) -> bool:
    """Return whether an explanation brings a value 2^NEEDED times nearer than without it, and integers exactly.

    `remaining`: what it leaves over of each of the values. `left`: what was left over without it; None if there was
    nothing to explain.
    """
    if left is None:
        return True
    return any(
        left[name] > remaining[name] and left[name] >= 2.0**NEEDED * max(remaining[name], value.grain / GRAIN)
        for name, value in values.items()
    )


def largest_difference(recorded: Array, predicted: Array | None, needs_finite: bool = False) -> float:
    """Return the largest difference; infinity if the shapes differ. NaN and infinities that are the same do not differ.

    `needs_finite`: whether it is infinite, too, where nothing finite was recorded.
    """
    if predicted is None or np.shape(predicted) != recorded.shape:
        return math.inf
    predicted = np.asarray(predicted)
    with np.errstate(all="ignore"):
        differences = np.abs(np.subtract(recorded, predicted, dtype=np.float64))
        largest = float(differences.max(initial=0.0))
        if math.isfinite(largest):
            return largest
        if needs_finite and not np.isfinite(recorded).any():
            return math.inf
        same = (recorded == predicted) | (np.isnan(recorded) & np.isnan(predicted))
    return float(np.nan_to_num(np.where(same, 0.0, differences), nan=np.inf).max(initial=0.0))
