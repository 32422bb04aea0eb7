"""Causes in an optimizer of the user's own: the conventions of SGD and Adam in which the two sides' updates differ.

What such an optimizer is configured with is not known, nor what its state is called. So its updates alone are
explained, by the formula of either, and other parameters must follow from the same settings.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from parity.config import schema
from parity.diagnose import entries, explain
from parity.diagnose.entries import Cause
from parity.diagnose.explain import Change
from parity.diagnose.optimizers import FORMULAS
from parity.diagnose.question import Question
from parity.diagnose.replayed import explains
from parity.diagnose.sides import Side
from parity.diagnose.updates import Updates, observe
from parity.trace import keys
from parity.trace.manifest import Trace

BETAS: Final = (0.999, 0.99)  # of Adam's second moment, to begin with
DECAY: Final = "weight_decay"
OTHERS: Final = 2  # parameters besides the first that must follow from the same settings


def causes(reference: Trace, candidate: Trace, name: str) -> list[Cause]:
    """Return in what the updates of a parameter differ, none if no formula explains both sides.

    Args:
        reference: the reference's trace.
        candidate: the candidate's.
        name: a parameter whose updates differ.
    """
    sides = Side("torch", reference), Side("keras", candidate)
    first, *others = [name, *(other for other in sides[0].parameters if other != name)]
    for optimizer in _configured(sides, name):
        asked = [ask for each in (first, *others) if (ask := _asked(sides, each, optimizer))]
        answer = explain.compare(asked[0].formula, asked[0].reference, asked[0].candidate) if asked else None
        if answer and answer.changes and (settings := answer.settings):
            moving = [ask for ask in asked[1:] if any(gradient.any() for gradient in ask.reference.gradients)]
            if all(explains(ask, settings) for ask in moving[:OTHERS]):
                return [entries.cause(asked[0], change, ("torch", "keras")) for change in _telling(answer.changes)]
    return []


def _telling(changes: Sequence[Change]) -> list[Change]:
    """Return the changes without the form of a weight decay that only one side has."""
    is_one_sided = any(change.trait == DECAY and 0 in (change.reference, change.candidate) for change in changes)
    return [change for change in changes if not (is_one_sided and change.trait.startswith("decay"))]


def _configured(sides: tuple[Side, Side], name: str) -> Iterator[schema.Optimizer]:
    """Yield the optimizers to begin with, with the learning rates that were recorded, or that Adam would have."""
    recorded = (side.tensors(0).get(keys.key("optimizer_state", "learning_rate")) for side in sides)
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
    return updates._replace(seen=seen, case=msgspec.structs.replace(updates.case, optimizer=optimizer))
