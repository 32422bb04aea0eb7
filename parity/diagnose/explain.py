"""Explanations: the settings under which a formula reproduces what was seen.

The reference is explained first. Then the candidate: by the reference's own settings, or else by changing
one or two of them. What had to be changed is the cause, if the evidence reaches 20 bits.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from parity.diagnose.formula import NEEDED, Formula, Settings, Trait, What, bits, bits_of, residuals, tells, values

SPARE: Final = 4  # bits more, so that a constant told by one side's data holds on the other's
MOST_CHANGES: Final = 2  # settings that one module's explanation may change
DIGITS: Final = 17  # that tell every float64 from its neighbours


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

    `changes`: what it does otherwise. With neither, nothing that was tried explains it: `tried`. `settings`: of both
    sides, if they are explained. `known`: whether the formula reproduces the reference.
    """

    same: bool
    changes: tuple[Change, ...]
    tried: tuple[str, ...]
    known: bool = True
    settings: tuple[Settings, Settings] | None = None


def compare(formula: Formula[What], reference: What, candidate: What) -> Explained:
    """Explain the candidate by the reference's settings, or by what it does otherwise."""
    tried = tuple(dict.fromkeys(trait.cause for trait in formula.traits))
    mine = explain(formula, reference)
    if mine is None:
        return Explained(False, (), tried, known=False)
    left = residuals(formula, candidate, mine.settings)
    before = bits(candidate.seen, left)
    if before >= NEEDED:
        return Explained(True, (), tried, settings=(mine.settings, mine.settings))
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
        if (reached := bits(observation.seen, found)) >= NEEDED and tells(observation.seen, found, left):
            for trait in changed:
                settings, reached = _rounded(formula, observation, settings, trait, reached, left)
            return Explanation(settings, reached)
    return None


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
    return {name for name, value in observation.seen.items() if bits_of(value, left[name]) >= NEEDED}


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
        if kept >= min(reached, NEEDED + SPARE) and tells(observation.seen, found, left):
            return shorter, kept
    return settings, reached
