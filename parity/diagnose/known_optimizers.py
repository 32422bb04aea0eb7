"""Causes in optimizers of the frameworks' own, whose settings are recorded and whose formulas are known.

Where both sides' updates follow from the settings that they state, nothing is searched for. A setting is a cause if the
candidate's updates no longer follow when it is the reference's.
"""

from collections.abc import Iterator
from typing import Any

from parity.diagnose.explain import Change, Explained
from parity.diagnose.formula import NEEDED, Formula, Settings, bits, residuals
from parity.diagnose.optimizer_steps import Rule
from parity.diagnose.updates import Updates

KIND = "kind"
DECAY = "weight_decay"


def explained(formula: Formula[Updates], reference: Updates, candidate: Updates) -> Explained | None:
    """Return in which settings two optimizers differ; None if either's are not known, or do not explain its updates.

    `formula`: of the reference's kind of optimizer, whose traits name the causes.
    """
    if reference.settings is None or candidate.settings is None:
        return None
    mine, theirs = (Rule(**settings)._asdict() for settings in (reference.settings, candidate.settings))
    reached = _reached(formula, candidate, theirs)
    if min(reached, _reached(formula, reference, mine)) < NEEDED:
        return None
    # What float32 sees comes before what it does not.
    changes = tuple(sorted(_changes(formula, candidate, mine, theirs, reached), key=lambda change: change.before))
    tried = tuple(dict.fromkeys(trait.cause for trait in formula.traits))
    return Explained(not changes, changes, tried, settings=(mine, theirs))


def _changes(
    formula: Formula[Updates], candidate: Updates, mine: Settings, theirs: Settings, reached: float
) -> Iterator[Change]:
    """Yield the settings without which the candidate's updates do not follow."""
    differing = [trait for trait in formula.traits if mine[trait.name] != theirs[trait.name]]
    if mine[KIND] != theirs[KIND]:
        differing = [trait for trait in differing if trait.name == KIND]
    elif 0 in (mine[DECAY], theirs[DECAY]):  # then the form of the other's decay is no difference of its own
        differing = [trait for trait in differing if trait.name != "decay_form"]
    for trait in differing:
        before = _reached(formula, candidate, {**theirs, trait.name: mine[trait.name]})
        # At a constant learning rate the form of the momentum changes what is kept, but no update.
        if before < NEEDED and not (trait.name == "momentum_form" and len(set(mine["rates"])) == 1):
            yield Change(trait.name, trait.cause, mine[trait.name], theirs[trait.name], reached, before)
    is_other = [rate != their_rate for rate, their_rate in zip(mine["rates"], theirs["rates"], strict=True)]
    if mine[KIND] == theirs[KIND] and any(is_other):
        change = _rate(formula, candidate, mine, theirs, is_other.index(True), reached)
        if change.before < NEEDED:
            yield change


def _rate(
    formula: Formula[Updates], candidate: Updates, mine: Settings, theirs: Settings, step: int, reached: float
) -> Change:
    """Return the change of the learning rate in the first step where it differs."""
    before = _reached(formula, candidate, {**theirs, "rates": mine["rates"]})
    cause = f"{mine[KIND]}.learning_rate" if step == 0 else "schedule.rate"
    name = "learning_rate" if step == 0 else f"learning_rate of step {step}"
    return Change(name, cause, mine["rates"][step], theirs["rates"][step], reached, before)


def _reached(formula: Formula[Any], updates: Updates, settings: Settings) -> float:
    return bits(updates.seen, residuals(formula, updates, settings))
