"""A parameter's recorded updates, which formulas of optimizers are held against, and whether settings explain them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from parity.config import schema
from parity.config.pair import EPSILON, WITHIN
from parity.core.arrays import Array
from parity.diagnose.formula import NEEDED, Seen, Settings, largest, reproduced_bits, seen
from parity.diagnose.topic import MOST_SEEN, Question, Side, Sides
from parity.trace import keys

MOST_UPDATED = 1 << 10  # elements of a parameter above which only some rows of its updates are replayed
FROZEN = "frozen"  # the one setting that belongs to a single parameter; all others belong to the optimizer
Both = tuple[Settings, Settings]


class Updates(NamedTuple):
    """The updates of a parameter during the first steps."""

    initial: Array  # the parameter before the first step
    gradients: tuple[Array, ...]  # what the optimizer applied, one for each step in order
    case: schema.Case
    # `update@0` (the parameter after step 0 minus `initial`), `SLOT@0` for each slot of the optimizer's state
    # (momentum_buffer, exp_avg, exp_avg_sq) and `learning_rate@0` (the rate of step 1); then the same `@N` of the last
    # step N, where the update is again the parameter minus `initial`.
    seen: Mapping[str, Seen]
    # Those of the optimizer, as `optimizer_steps.Rule` names them, if it is one of a framework's own.
    settings: Settings | None = None
    # The squares of the gradients, where the optimizer squares each row of a repeated id by itself.
    squares: tuple[Array, ...] = ()


def observe(side: Side, name: str, replica: int = 0) -> Updates | None:
    """Return a parameter's updates over the updating steps with recorded gradients; None if it is not of numbers."""
    initial = side.tensors(None, replica).get(f"parameter/{name}")
    gradients = list(_gradients(side, (f"{name}{keys.APPLIED}", name), replica))  # a step may apply it as it is
    if initial is None or initial.dtype == bool or not gradients:
        return None
    values: dict[str, Seen] = {}
    for number in {0, len(gradients) - 1}:
        values |= _step_values(side, name, number, replica, initial)
    if not values:
        return None
    sampled = {key: value._replace(value=_some_rows(value.value, initial.shape)) for key, value in values.items()}
    first, *applied = (_some_rows(array, initial.shape) for array in (initial, *gradients))
    squares = [_some_rows(array, initial.shape) for array in _gradients(side, (f"{name}{keys.SQUARES}",), replica)]
    settings = _settings(side, name, len(gradients))
    if settings and squares:
        settings = {**settings, "gradient": "IndexedSlices"}
    return Updates(first, tuple(applied), side.case, sampled, settings, tuple(squares))


def _settings(side: Side, name: str, steps: int) -> Settings | None:
    """Return the settings by which a known optimizer updates a parameter, with the learning rates of its steps.

    All groups' rates change as the first one's. A trained parameter in no group is none that the optimizer was given.
    """
    training = side.trace.manifest.training
    settings = next((group.settings for group in training.groups if name in group.parameters), None)
    if training.groups and settings is None and name in side.trace.manifest.layout.parameters:
        settings = {**training.groups[0].settings, "frozen": "parameter and optimizer state"}
    numbers = _updating(side)  # also where this parameter has fewer gradients: what explains one is asked of others
    by_step = dict(enumerate(training.rates))
    rates = [rate for number in (*numbers, numbers[-1] + 1) if (rate := by_step.get(number)) is not None]
    if settings is None or len(rates) <= steps:
        return None
    for cause, placement in ((EPSILON, "before the correction"), *((each, "outside the root") for each in WITHIN)):
        if cause in training.causes_held:
            settings = {**settings, "epsilon_placement": placement}
    noted, own = training.rate or rates[0], float(settings["learning_rate"])
    scale = own / noted if own and noted else 1.0  # of a group with a rate of its own
    return {**settings, "rates": tuple(own if rate == noted else scale * rate for rate in rates)}


def _updating(side: Side) -> list[int]:
    """Return the steps that make an update; all, where none is known to."""
    waiting, steps = side.trace.manifest.training.waiting, range(side.case.steps)
    return [step for step in steps if step not in waiting] or list(steps)


def _gradients(side: Side, names: Sequence[str], replica: int) -> Iterator[Array]:
    """Yield of each step the first of these gradients that it has recorded, until the first step that has none."""
    for step in _updating(side):
        tensors = side.tensors(step, replica)
        gradient = next((tensors[key] for name in names if (key := f"gradient/{name}") in tensors), None)
        if gradient is None:
            return
        yield gradient


def _step_values(side: Side, name: str, number: int, replica: int, initial: Array) -> dict[str, Seen]:
    """Return how a parameter was updated so often, and its optimizer slots then, as evidence."""
    step = _updating(side)[number]
    tensors, low = side.tensors(step, replica), side.tensors(step, replica, "low")
    parameter = f"parameter/{name}"
    if parameter not in tensors or tensors[parameter].shape != initial.shape:
        return {}
    stored = largest(tensors[parameter]) * (step + 1)
    fits = parameter in low and low[parameter].shape == initial.shape
    before = _examined_rows(initial)
    low_update = _examined_rows(low[parameter]).astype(np.float64) - before if fits else None
    values = {f"update@{number}": seen(_examined_rows(tensors[parameter]) - before, low_update, stored)}
    slots = [key for key in tensors if key.startswith(f"optimizer_state/{name}.")]
    for key in ("optimizer_state/learning_rate", *slots):
        if (value := side.value(key, step, replica)) is not None:
            values[f"{key.rpartition('.')[2].rpartition('/')[2]}@{number}"] = value
    return values


def _some_rows(array: Array, shape: tuple[int, ...]) -> Array:
    """Return some rows of a large parameter's array: an optimizer treats every element alike, so a few suffice."""
    stride = math.prod(shape) // MOST_UPDATED
    return array[::stride] if stride > 1 and array.shape == shape else array


def _examined_rows(array: Array) -> Array:
    """Return some rows of an array that is too large to be copied often, else all of it."""
    return _some_rows(array, array.shape) if array.size > MOST_SEEN else array


class Replayed(NamedTuple):
    """What explains the updates of the examined parameters: the settings of both sides, if any do."""

    sides: Sides
    explanations: Sequence[tuple[Question, Both | None]]

    def reproduces(self, name: str, replica: int, frozen: bool) -> bool:
        """Return whether each side's updates of a parameter follow from its own gradients under some of these settings.

        `frozen`: whether settings also count in which one side leaves the parameter as it is. Otherwise these count
        only for a parameter that has no gradient on either side.
        """
        both = [updates for side in self.sides.both if (updates := observe(side, name, replica))]
        if len(both) < 2:
            return False
        frozen = frozen or not any(gradient.any() for updates in both for gradient in updates.gradients)
        return any(
            explains(ask._replace(both=both), settings)
            for ask, settings in self.explanations
            if settings and (frozen or settings[0][FROZEN] == settings[1][FROZEN])
        )


def explains(question: Question, settings: Both) -> bool:
    """Return whether a pair of settings, one for each side, reproduces what a question is about."""
    return all(
        reproduced_bits(question.formula, observation, side_settings) >= NEEDED
        for observation, side_settings in zip(question.both, settings, strict=True)
    )
