"""Bring the recordings of both sides into one form, where they differ in what is no difference of the computation.

Of decay that is coupled, an optimizer adds a multiple of the weight to its gradient. A penalty in the loss does the
same, and so does a training step of the user's own: the gradients that are recorded then differ by that multiple, and
the updates that are made of them need not. Keras's side is therefore compared as if its optimizer did all of it.

And momentum that one framework's optimizers multiply by the learning rate before they keep it, and the other's after.
Where the rate is the same in all steps, both are the same computation: Keras's slots are compared in torch's form.
"""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from parity.core.arrays import Array
from parity.diagnose.solve import APART, multiple
from parity.pairs.hidden import HIGH, without
from parity.trace import keys
from parity.trace.manifest import Change, Tensors, Trace
from parity.trace.training import ParameterGroup
from parity.verdict.traces import Unequal

ROUNDINGS = 4  # of the multiple, its sum with the gradient, and their difference
DIGITS = 12  # of a decay
OUTSIDE = "rate outside"  # torch's form of momentum, as parity.diagnose.optimizer_steps names them
SIGNS = {"rate inside": 1, "rate inside, negative": -1}
SLOT = "momentum_buffer"


def as_decayed(unequal: list[Unequal], reference: Trace, candidate: Trace) -> tuple[Trace, Trace, str] | None:
    """Return both traces with as much weight decay in Keras's gradients as in torch's, and a sentence for the report.

    None where no decayed parameter's gradients first differ by a multiple of it.
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
            rest = keras[name] - stated * before[name]
            is_stopped = np.abs(rest).max() <= APART * np.abs(torch[name]).max()
            # Of a single number all is a multiple.
            if before[name].size > 1 and (factor := multiple(before[name], keras[name] - torch[name])):
                is_stated = abs(factor - stated) <= APART * abs(stated)  # but for what earlier updates have moved
                multiples[name] = stated if is_stated else factor
            elif is_stopped or (rest.size > 1 and multiple(torch[name], rest)):
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
    groups = [made for group in candidate.manifest.training.groups for made in _groups(group, multiples)]
    change = _without_decay(multiples, candidate, reference)
    note = f"the gradient of {first} holds on one side the weight decay that the other's optimizer adds"
    training = replace(candidate.manifest.training, groups=groups)
    return without(reference, late), without(candidate.changed(change, training=training), late), note


def _without_decay(multiples: Mapping[str, float], candidate: Trace, reference: Trace) -> Change:
    """Return a change that takes these multiples of the weights, which the optimizer is to add, from gradients."""

    def lessened(tensors: Tensors, run: str, stem: str, replica: int) -> Tensors:
        before = _weights(candidate, run, stem, replica) if stem != keys.INITIAL else {}
        theirs = reference.open(run, stem, replica) if before else {}
        for name, weight in ((name, before[name]) for name in multiples if name in before):
            if (key := keys.key("gradient", name)) in tensors and key in theirs:
                tensors[key] = _less(tensors[key], multiples[name] * weight, theirs[key])
        return tensors

    return lessened


def in_torchs_form(trace: Trace) -> Trace:
    """Return Keras's trace with the momentum of its optimizers in torch's form, where the learning rates stay."""
    training = trace.manifest.training
    is_constant = len(set(training.rates)) == 1 and None not in training.rates
    scales = {name: scale for group in training.groups if (scale := _scale(group)) for name in group.parameters}
    if not scales or not is_constant or trace.manifest.summarised:
        return trace
    groups = [
        replace(group, settings={**group.settings, "momentum_form": OUTSIDE}) if _scale(group) else group
        for group in training.groups
    ]

    def scaled(tensors: Tensors, *_: object) -> Tensors:
        for name, scale in scales.items():
            if (key := keys.key("optimizer_state", f"{name}.{SLOT}")) in tensors:
                tensors[key] = tensors[key] * tensors[key].dtype.type(scale)
        return tensors

    return trace.changed(scaled, training=replace(training, groups=groups))


def _scale(group: ParameterGroup) -> float:
    """Return by what a slot of momentum is multiplied; 0 where it is in torch's form, or has none."""
    rate, sign = float(group.settings["learning_rate"]), SIGNS.get(str(group.settings.get("momentum_form")), 0)
    return sign / rate if rate else 0.0


def _less(gradient: Array, added: Array, expected: Array) -> Array:
    """Return a gradient without what was added to it; where rounding may hide a difference, what the other side has."""
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
            names, {**group.settings, "weight_decay": round(decay + added, DIGITS), **(coupled if added else {})}
        )
        for added, names in parts.items()
    ]
