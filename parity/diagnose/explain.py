"""Search for the settings under which a formula reproduces what was recorded.

The reference is explained first. Then the candidate is, with the reference's settings or else with one or two of them
changed. What had to be changed is the cause, provided that the evidence reaches 20 bits.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from parity.diagnose.formula import (
    NEEDED,
    SUBPRECISION,
    UNSET,
    UNUSED,
    Formula,
    Observed,
    Settings,
    Trait,
    bits,
    bits_of,
    is_conclusive,
    reproduced_bits,
    residuals,
    values,
)

Answer = TypeVar("Answer")
Traits = tuple[Trait[Observed], ...]
SPARE: Final = 4  # bits above NEEDED, so that a constant rounded for one side's data also fits the other's
MOST_CHANGES: Final = 2  # traits that an exhaustive search changes at once
DIGITS: Final = 17  # decimal digits that identify a float64


class Explanation(NamedTuple):
    """Settings under which a formula reproduces what was recorded, and to how many bits."""

    settings: Settings
    bits: float


class Change(NamedTuple):
    """A trait whose value the candidate does not share with the reference."""

    trait: str  # its name, a parameter of the formula
    cause: str  # the id to report
    reference: Any
    candidate: Any
    bits: float  # to how many bits the candidate is reproduced with its own value
    before: float  # to how many bits it is reproduced with the reference's value


class Explained(NamedTuple):
    """The outcome of comparing two observations by a formula."""

    same: bool  # whether the candidate computes what the reference computes
    # What it does differently. If there are none and `same` is false, nothing that was tried explains it.
    changes: tuple[Change, ...]
    tried: tuple[str, ...]  # the ids of all causes that the formula can find
    known: bool = True  # whether the formula reproduces the reference
    # The settings of the reference and of the candidate, if both are explained.
    settings: tuple[Settings, Settings] | None = None
    error: Exception | None = None  # what the formula raised because of a mistake in it; then nothing else is known
    hidden: bool = False  # whether what nothing explains is too small for float32 to see


def guarded(compute: Callable[[], Answer]) -> Answer | Explained:
    """Return an answer, or the mistake that was made on the way to it, which must not cost the user the verdict."""
    try:
        return compute()
    except MemoryError:
        raise
    except Exception as error:
        return Explained(False, (), (), known=False, error=error)


def compare(formula: Formula[Observed], reference: Observed, candidate: Observed) -> Explained:
    """Explain the candidate with the reference's settings, or else find what it does differently."""
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
        return Explained(False, (), tried, hidden=before >= SUBPRECISION)
    if formula.is_function and reproduced_bits(formula, reference, theirs.settings) >= NEEDED:
        # The reference's data could not tell these settings from its own: a ReLU of positive numbers is the identity.
        return Explained(True, (), tried, settings=(theirs.settings, theirs.settings))
    changes, sides = [], ((reference, mine.settings), (candidate, theirs.settings))
    for trait in formula.traits:
        pair = mine.settings[trait.name], theirs.settings[trait.name]
        if pair[0] == pair[1] or UNUSED in pair:
            continue
        # A trait may make no difference under the settings of those before it.
        if UNUSED not in (next(values(formula, trait, *side), UNSET) for side in sides):
            changes.append(Change(trait.name, trait.specific_cause(*pair) or trait.cause, *pair, theirs.bits, before))
    return Explained(False, tuple(changes), tried, settings=(mine.settings, theirs.settings))


def explain(
    formula: Formula[Observed],
    observation: Observed,
    base: Settings | None = None,
    left: Mapping[str, float] | None = None,
) -> Explanation | None:
    """Return the settings nearest to `base` that reproduce what was recorded, or None.

    `base`: where to start; the usual values of all traits, if not given. `left`: the residuals under `base`, by name.
    An explanation must make 20 bits of at least one of them vanish: otherwise the evidence is too weak to name a cause.
    """
    search = _Search(formula, observation, left)
    start = usual_settings(formula, observation) if base is None else base
    unchanged: list[tuple[Settings, Traits[Observed]]] = [(start, ())] if base is None else []
    for settings, changed in itertools.chain(unchanged, search.assignments(start), search.by_parts(start)):
        if (reached := search.reached(settings)) >= NEEDED:
            for trait in changed:
                settings, reached = search.with_fewest_digits(settings, trait, reached)
            return Explanation(settings, reached)
    return None


class _Search(NamedTuple, Generic[Observed]):
    """The settings of a formula that may reproduce an observation; `left` are the residuals to be explained, if any."""

    formula: Formula[Observed]
    observation: Observed
    left: Mapping[str, float] | None

    def reached(self, settings: Settings) -> float:
        """Return to how many bits settings reproduce the observation; 0 where they do so without evidence for them."""
        seen, remaining = self.observation.seen, residuals(self.formula, self.observation, settings)
        reached = bits(seen, remaining)
        return reached if reached < NEEDED or is_conclusive(seen, remaining, self.left) else 0.0

    def assignments(self, base: Settings) -> Iterator[tuple[Settings, Traits[Observed]]]:
        """Yield settings to try with the traits that they change, those with the fewest changes first."""
        for count in range(1, MOST_CHANGES + 1):
            for changed in itertools.combinations(self.formula.traits, count):
                yield from ((settings, changed) for settings in self.with_changes(base, changed))

    def by_parts(self, settings: Settings) -> Iterator[tuple[Settings, Traits[Observed]]]:
        """Yield settings found by accepting one change after another, for observations of several values.

        A change is accepted if more of the values are reproduced with it. That finds combinations of more than
        MOST_CHANGES changes, which would take too long to try exhaustively.
        """
        changed: Traits[Observed] = ()
        while len(self.observation.seen) > 1:
            reproduced = self.reproduced(settings)
            traits = self.formula.traits
            trials = ((trial, trait) for trait in traits for trial in self.with_changes(settings, (trait,)))
            improvement = next((trial for trial in trials if reproduced < self.reproduced(trial[0])), None)
            if improvement is None:
                return
            settings, changed = improvement[0], (*changed, improvement[1])
            yield settings, changed

    def reproduced(self, settings: Settings) -> set[str]:
        """Return the names of the values that the settings reproduce."""
        left = residuals(self.formula, self.observation, settings)
        return {name for name, value in self.observation.seen.items() if bits_of(value, left[name]) >= NEEDED}

    def with_changes(self, base: Settings, traits: Traits[Observed]) -> Iterator[Settings]:
        """Yield the settings with every combination of other values for the given traits."""
        if not traits:
            yield base
            return
        for value in values(self.formula, traits[0], self.observation, base):
            if value != base[traits[0].name]:
                yield from self.with_changes({**base, traits[0].name: value}, traits[1:])

    def with_fewest_digits(self, settings: Settings, trait: Trait[Observed], reached: float) -> tuple[Settings, float]:
        """Return the settings with a solved constant's noisy last digits dropped as far as they fit, and their bits."""
        value = settings[trait.name]
        if not isinstance(value, float) or not math.isfinite(value):
            return settings, reached
        for digits in range(1, DIGITS):
            shorter = {**settings, trait.name: float(f"{value:.{digits}g}")}
            if shorter == settings:
                break
            if (reached_with_fewer := self.reached(shorter)) >= min(reached, NEEDED + SPARE):
                return shorter, reached_with_fewer
        return settings, reached


def usual_settings(formula: Formula[Observed], observation: Observed) -> Settings:
    """Return the first value of every trait, which is the usual one; UNSET if there is none."""
    settings: Settings = {}
    for trait in formula.traits:
        settings[trait.name] = next(values(formula, trait, observation, settings), UNSET)
    return settings
