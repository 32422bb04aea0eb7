"""Causes in an optimizer of the user's own: the conventions of SGD and Adam in which the two sides' updates differ.

What such an optimizer is configured with is not known, nor what its state is called. So its updates alone are
explained, by the formula of either, and several parameters must follow from the same settings.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from parity.config import schema
from parity.diagnose import entries, explain
from parity.diagnose.explain import Change
from parity.diagnose.optimizers import FORMULAS
from parity.diagnose.question import Question
from parity.diagnose.replayed import Both, explains
from parity.diagnose.sides import Side
from parity.diagnose.updates import Updates, observe
from parity.results import Cause
from parity.trace import keys
from parity.trace.manifest import Trace

BETAS: Final = (0.999, 0.99)  # of Adam's second moment, to begin with
CONSTANT: Final = schema.Schedule(every=1, factor=1.0)  # so that another schedule is looked for
DECAY: Final = "weight_decay"
RATE: Final = "learning_rate"  # recorded as state of the optimizer: it follows from the settings as well
TRIED: Final = 3  # parameters for which an explanation is looked for
NEEDED: Final = 3  # parameters that must follow from the same settings, if so many differ


class Explained(NamedTuple):
    """Causes of different updates, and the parameters whose updates follow from them."""

    causes: list[Cause]
    parameters: frozenset[str]


def explained(reference: Trace, candidate: Trace, names: Sequence[str]) -> Explained:
    """Return in what the updates of parameters differ; no causes if no formula explains both sides.

    Args:
        reference: the reference's trace.
        candidate: the candidate's.
        names: the parameters whose updates differ.
    """
    sides = Side("torch", reference), Side("keras", candidate)
    for name in names[:TRIED]:
        for optimizer in _configured(sides, name):
            ask = _asked(sides, name, optimizer)
            answer = explain.compare(ask.formula, ask.reference, ask.candidate) if ask else None
            if ask and answer and answer.changes and answer.settings:
                follow = [each for each in names if _follows(_asked(sides, each, optimizer), answer.settings)]
                if len(follow) >= min(NEEDED, len(names)):
                    found = [entries.cause(ask, change, ("torch", "keras")) for change in _telling(answer.changes)]
                    return Explained(found, frozenset([*follow, RATE]))
    return Explained([], frozenset())


def _follows(question: Question | None, settings: Both) -> bool:
    return question is not None and explains(question, settings)


def _telling(changes: Sequence[Change]) -> list[Change]:
    """Return the changes without the form of a weight decay that only one side has."""
    is_one_sided = any(change.trait == DECAY and 0 in (change.reference, change.candidate) for change in changes)
    return [change for change in changes if not (is_one_sided and change.trait.startswith("decay"))]


def _configured(sides: tuple[Side, Side], name: str) -> Iterator[schema.Optimizer]:
    """Yield the optimizers to begin with, with the learning rates that were recorded, or that Adam would have."""
    recorded = (side.tensors(0).get(keys.key("optimizer_state", RATE)) for side in sides)
    rates = [float(rate) for rate in recorded if rate is not None]
    if observed := observe(sides[0], name):
        steps = np.abs(observed.seen[f"{keys.UPDATE}@0"].value)
        rates += [float(np.median(steps[steps > 0]))] if steps.any() else []
    for rate in dict.fromkeys(rate for rate in rates if 0 < rate < np.inf):
        for betas in BETAS:
            yield schema.Adam(learning_rate=rate, beta2=betas)
        yield schema.SGD(learning_rate=rate)


def _asked(sides: tuple[Side, Side], name: str, optimizer: schema.Optimizer) -> Question | None:
    """Return the question about a parameter's updates, without the optimizer's state; None where a side lacks them."""
    both = [_alone(observed, optimizer) for side in sides if (observed := observe(side, name))]
    formula = FORMULAS[type(optimizer).__name__.lower()]
    return Question.of(keys.UPDATE, name, formula, both) if len(both) == len(sides) else None


def _alone(updates: Updates, optimizer: schema.Optimizer) -> Updates:
    seen = {name: value for name, value in updates.seen.items() if name.startswith(keys.UPDATE)}
    return updates._replace(
        seen=seen, case=msgspec.structs.replace(updates.case, optimizer=optimizer, schedule=CONSTANT)
    )
