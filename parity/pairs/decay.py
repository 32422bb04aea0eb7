"""Weight decay that one side adds to its gradients, and the other's optimizer applies.

Of decay that is coupled, an optimizer adds a multiple of the weight to its gradient. A penalty in the loss does the
same, and so does a training step of the user's own: the gradients that are recorded then differ by that multiple, and
the updates that are made of them need not. Keras's side is therefore compared as if its optimizer did all of it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.pairs.hidden import HIGH, Hiding
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.training import ParameterGroup
from parity.verdict.traces import Unequal

EXACT = 2.0**-20  # of the largest difference, what may be left of it
ROUNDINGS = 4  # of the multiple, its sum with the gradient, and their difference
DIGITS = 12  # of a decay


class AsDecayed(NamedTuple):
    """Both traces, with as much weight decay in Keras's gradients as in torch's, and a sentence for the report."""

    reference: Trace
    candidate: Trace
    note: str


def as_decayed(unequal: list[Unequal], reference: Trace, candidate: Trace) -> AsDecayed | None:
    """Return the traces so; None where no parameter that is decayed has gradients that differ by a multiple of it.

    The first step counts in which they differ: a weight that is zero at first has no multiple.
    """
    settings = [_decays(trace) for trace in (reference, candidate)]
    is_decayed = any(decay for side in settings for decay in side.values())
    if reference.manifest.summarised or not is_decayed or all(each.kind != "gradient" for each in unequal):
        return None
    stems = [stem for stem in candidate.stems(HIGH) if stem != keys.INITIAL]
    multiples: dict[str, float] = {}
    likely: dict[str, float] = {}  # those that the settings tell of gradients that differ otherwise too
    seen: set[str] = set()
    for stem in stems:
        step = keys.step_of(stem)
        differ = {each.name for each in unequal if (each.kind, each.step, each.replica) == ("gradient", step, 0)}
        before = _weights(candidate, HIGH, stem)
        torch, keras = (trace.of_kind("gradient", step) for trace in (reference, candidate))
        for name in sorted((differ - seen) & before.keys() & torch.keys() & keras.keys()):
            decays = [each[name] for each in settings if name in each]
            if len(decays) < len(settings) or not any(decays):
                continue
            stated = decays[0] - decays[1]
            if factor := _factor(keras[name] - torch[name], before[name]):
                multiples[name] = factor
            elif _is_scaled(keras[name] - stated * before[name], torch[name]):
                multiples[name] = stated
            else:
                likely[name] = stated
        seen |= differ
    if not multiples:
        return None
    multiples = likely | multiples  # who adds it to some adds it to all, whatever else is done
    first = f"{min(multiples)}{f' and {len(multiples) - 1} more' if len(multiples) > 1 else ''}"
    gradients = {keys.key("gradient", name) for name in multiples}
    late = {stem: gradients for stem in stems if not _weights(candidate, HIGH, stem)}
    note = f"the gradient of {first} holds on one side the weight decay that the other's optimizer adds"
    return AsDecayed(Hiding(reference, late), Hiding(_Decayed(candidate, multiples, reference), late), note)


class _Decayed(Trace):
    """A trace whose gradients are without these multiples of the weights, which its optimizer is to add.

    What rounding may have made of such a difference is taken to be what the other side has.
    """

    def __init__(self, trace: Trace, multiples: Mapping[str, float], reference: Trace) -> None:
        training = trace.manifest.training
        groups = [made for group in training.groups for made in _groups(group, multiples)]
        vars(self).update(vars(trace.replaced(training=msgspec.structs.replace(training, groups=groups))))
        self._trace, self._multiples, self._reference = trace, multiples, reference

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """Return the tensors of one step. Raises TraceError."""
        tensors = self._trace.open(run, stem, replica)
        if stem == keys.INITIAL:
            return tensors
        before, theirs = _weights(self._trace, run, stem, replica), self._reference.open(run, stem, replica)
        for name, multiple in self._multiples.items():
            key, weight = keys.key("gradient", name), before.get(name)
            if key in tensors and key in theirs and weight is not None:
                tensors[key] = _less(tensors[key], multiple * weight, theirs[key])
        return tensors


def _less(gradient: Array, added: Array, expected: Array) -> Array:
    """Return a gradient without what was added to it; where rounding hides a difference, what is expected."""
    rounding = ROUNDINGS * np.finfo(gradient.dtype).eps * np.maximum(np.abs(gradient), np.abs(added))
    rest = (gradient - added).astype(gradient.dtype)
    return np.where(np.abs(rest - expected) <= rounding, expected, rest)


def _weights(trace: Trace, run: str, stem: str, replica: int = 0) -> Tensors:
    """Return the parameters before a step, by name; none where the step before it has recorded none."""
    number = keys.step_of(stem)
    before = keys.step_file(number - 1 if number else None)
    recorded = HIGH if before == keys.INITIAL else run
    return keys.of_kind(trace.open(recorded, before, replica), "parameter") if before in trace.stems(recorded) else {}


def _decays(trace: Trace) -> dict[str, float]:
    """Return what a side's optimizer adds to the gradient of each parameter, as a multiple, where that is known."""
    return {
        name: float(group.settings.get("weight_decay", 0.0))
        for group in trace.manifest.training.groups
        for name in group.parameters
        if group.settings.get("decay_form") == "coupled" or not group.settings.get("weight_decay")
    }


def _groups(group: ParameterGroup, multiples: Mapping[str, float]) -> list[ParameterGroup]:
    """Return the parts of a group whose parameters have the same decay, these multiples added."""
    parts: dict[float, list[str]] = {}
    for name in group.parameters:
        parts.setdefault(multiples.get(name, 0.0), []).append(name)
    decay = float(group.settings.get("weight_decay", 0.0))
    coupled = {"decay_form": "coupled"}
    return [
        ParameterGroup(
            names,
            {**group.settings, "weight_decay": round(decay + multiple, DIGITS), **(coupled if multiple else {})},
        )
        for multiple, names in parts.items()
    ]


def _is_scaled(gradient: Array, reference: Array) -> bool:
    """Return whether a gradient is a reference times a number, or zero, as what stops it makes it."""
    return bool(np.abs(gradient).max() <= EXACT * np.abs(reference).max()) or bool(_factor(gradient, reference))


def _factor(difference: Array, weight: Array) -> float:
    """Return by which factor a difference is a weight; 0 if it is no multiple of it."""
    square = float(np.vdot(weight, weight))
    if difference.shape != weight.shape or not square or weight.size == 1:  # of which all is a multiple
        return 0.0
    factor = float(np.vdot(weight, difference)) / square
    rest = np.abs(difference - factor * weight).max()
    return factor if rest <= EXACT * np.abs(difference).max() else 0.0
