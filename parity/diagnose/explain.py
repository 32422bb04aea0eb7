"""Explanations: the hidden constants and conventions under which a formula reproduces what was seen.

A `Formula` predicts what a module, a loss or an optimizer comes to, as a function of its `Trait`s. The
reference is explained first. Then the candidate: by the reference's own settings, or else by changing
one or two of them. What had to be changed is the cause, if the evidence reaches 20 bits.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from parity.diagnose.observation import GRAIN, Array, Observation, Seen

SPARE: Final = 4  # bits more, so that a constant told by one side's data holds on the other's
NEEDED: Final = 20  # bits of evidence, as many as a match needs at float32
EXACT: Final = 53.0  # bits of whole numbers that are equal
MOST_CHANGES: Final = 2  # settings that one module's explanation may change
DIGITS: Final = 17  # that tell every float64 from its neighbours
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


class Explanation(NamedTuple):
    """Settings under which a formula reproduces what was seen, to so many bits."""

    settings: Settings
    bits: float


class Change(NamedTuple):
    """A trait in which the candidate is not the reference.

    `bits`: to how many the candidate is reproduced with its own value; `before`: with the reference's.
    """

    trait: str
    cause: str
    reference: Any
    candidate: Any
    bits: float
    before: float


class Explained(NamedTuple):
    """What came of two observations. `same`: the candidate does what the reference does.

    `changes`: what it does otherwise; `settings`: of both sides. With neither, nothing that was tried explains it:
    `tried`. `known`: whether the formula reproduces the reference.
    """

    same: bool
    changes: tuple[Change, ...]
    tried: tuple[str, ...]
    known: bool = True
    settings: tuple[Settings, Settings] | None = None


def choices(*values: Any) -> Callable[[Any, Settings], Iterable[Any]]:
    """A convention: one of these."""
    return lambda observation, settings: values


def compare(formula: Formula[What], reference: What, candidate: What) -> Explained:
    """Explain the candidate by the reference's settings, or by what it does otherwise."""
    tried = tuple(dict.fromkeys(trait.cause for trait in formula.traits))
    mine = explain(formula, reference)
    if mine is None:
        return Explained(False, (), tried, known=False)
    left = residuals(formula, candidate, mine.settings)
    before = bits(candidate.seen, left)
    if before >= NEEDED:
        return Explained(True, (), tried)
    theirs = explain(formula, candidate, mine.settings, left)
    if theirs is None:
        return Explained(False, (), tried)
    return Explained(
        False, tuple(_changes(formula, mine, theirs, before)), tried, settings=(mine.settings, theirs.settings)
    )


def _changes(formula: Formula[Any], mine: Explanation, theirs: Explanation, before: float) -> Iterator[Change]:
    for trait in formula.traits:
        one, other = mine.settings[trait.name], theirs.settings[trait.name]
        if one != other:
            yield Change(trait.name, trait.told(one, other) or trait.cause, one, other, theirs.bits, before)


def explain(
    formula: Formula[What], observation: What, base: Settings | None = None, left: Mapping[str, float] | None = None
) -> Explanation | None:
    """The nearest settings to `base` (the usual ones, if not given) that reproduce what was seen.

    `left`: what the base leaves unexplained, of which 20 bits have to vanish.
    """
    every = itertools.chain(_assignments(formula, observation, base), _by_parts(formula, observation, base))
    for settings, changed in every:
        found = residuals(formula, observation, settings)
        if (reached := bits(observation.seen, found)) >= NEEDED and _tells(observation.seen, found, left):
            for trait in changed:
                settings, reached = _rounded(formula, observation, settings, trait, reached, left)
            return Explanation(settings, reached)
    return None


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
    return min((_bits(value, left[name]) for name, value in values.items()), default=0.0)


def _bits(value: Seen, left: float) -> float:
    if not value.noise:  # whole numbers, or nothing but zeros
        return 0.0 if left else EXACT
    floor = max(value.grain / GRAIN, np.finfo(np.float64).tiny)
    reached = math.log2(value.noise) - math.log2(max(left, floor)) if math.isfinite(left) else 0.0
    return max(reached, NEEDED if left <= value.grain else 0.0)


def _tells(values: Mapping[str, Seen], found: Mapping[str, float], left: Mapping[str, float] | None) -> bool:
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
        same = (seen == predicted) | (np.isnan(seen) & np.isnan(predicted))
    return float(np.nan_to_num(np.where(same, 0.0, apart), nan=np.inf).max(initial=0.0))


def _assignments(
    formula: Formula[What], observation: What, base: Settings | None
) -> Iterator[tuple[Settings, tuple[Trait[What], ...]]]:
    """Settings to try, by the number of traits that are changed from the base."""
    if base is None:
        base = _usual(formula, observation)
        yield base, ()
    for count in range(1, MOST_CHANGES + 1):
        for changed in itertools.combinations(formula.traits, count):
            for settings in _changed(observation, base, changed):
                yield settings, changed


def _usual(formula: Formula[What], observation: What) -> Settings:
    settings: Settings = {}
    for trait in formula.traits:
        settings[trait.name] = next(values(trait, observation, settings), None)
    return settings


def _by_parts(
    formula: Formula[What], observation: What, base: Settings | None
) -> Iterator[tuple[Settings, tuple[Trait[What], ...]]]:
    """One change after another, where several values were seen: each explains one more of them."""
    settings = _usual(formula, observation) if base is None else base
    changed: tuple[Trait[What], ...] = ()
    while len(observation.seen) > 1:
        known = _known(formula, observation, settings)
        single = ((trial, trait) for trait in formula.traits for trial in _changed(observation, settings, (trait,)))
        better = ((trial, trait) for trial, trait in single if known < _known(formula, observation, trial))
        found = next(better, None)
        if found is None:
            return
        settings, changed = found[0], (*changed, found[1])
        yield settings, changed


def _known(formula: Formula[What], observation: What, settings: Settings) -> set[str]:
    left = residuals(formula, observation, settings)
    return {name for name, value in observation.seen.items() if _bits(value, left[name]) >= NEEDED}


def _changed(observation: What, base: Settings, changed: tuple[Trait[What], ...]) -> Iterator[Settings]:
    if not changed:
        yield base
        return
    first, *others = changed
    for value in values(first, observation, base):
        if value != base[first.name]:
            yield from _changed(observation, {**base, first.name: value}, tuple(others))


def _rounded(
    formula: Formula[What],
    observation: What,
    settings: Settings,
    trait: Trait[What],
    reached: float,
    left: Mapping[str, float] | None,
) -> tuple[Settings, float]:
    """The settings with a solved constant in as few digits as do, and to how many bits they reproduce what was seen."""
    value = settings[trait.name]
    if not isinstance(value, float) or not math.isfinite(value):
        return settings, reached
    for digits in range(1, DIGITS):
        shorter = {**settings, trait.name: float(f"{value:.{digits}g}")}
        if shorter == settings:
            break
        found = residuals(formula, observation, shorter)
        kept = bits(observation.seen, found)
        if kept >= min(reached, NEEDED + SPARE) and _tells(observation.seen, found, left):
            return shorter, kept
    return settings, reached
