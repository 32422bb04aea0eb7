"""Find what only the training tells of a pair: buffers that change, a `fit` that trains otherwise, modes and masks.

Keras has no counterpart for these buffers of torch's. The rehearsal makes only two passes; a buffer that begins to
change later is noticed once the training was recorded. And `fit` may train a Keras model otherwise than its recorded
steps, which ran op by op.
"""

import itertools
from collections import Counter
from collections.abc import Mapping as Named
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from parity.config.pair import UNKNOWN, Pair
from parity.core.arrays import Array
from parity.core.wording import count
from parity.diagnose.experiment.causes import CARRIED, KEPT
from parity.pairs.activations.modules import Surveyed
from parity.pairs.weights.runs import agrees
from parity.results import CaseResult, Cause, Divergence
from parity.runtime.survey import Survey
from parity.trace import keys
from parity.trace.keys import MODEL, plain
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import Mapping, Matching, counts
from parity.trace.training import Fitted

STATE = "fit.python_state"  # what Python keeps is frozen in the graph that fit makes
GRAPH = "fit.graph"  # fit computes otherwise for another reason
UPDATES = "accumulation.updates"  # after how many batches the gradients are applied
SCALES = ("loss.normalisation", "loss.scale", "gradient.scale")
PLACE = "dropout.place"  # dropouts that draw masks for tensors of other sizes
ORDER = "dropout.order"
MODES = ("dropout.active", "batch_norm.mode")  # what a layer does that is not told of the training
MOST = 3  # names in a sentence
State = Named[str, Array]


def name_fitted(result: CaseResult, candidate: Trace, mapping: Mapping) -> None:
    """Make a result diverged whose Keras model `fit` trains to another one than its recorded steps do.

    It is inconclusive where `fit` fails, or is the user's own.
    """
    fitted = candidate.manifest.training.fitted
    if fitted is None:
        return
    if fitted.error:
        changes = f"keras's steps change {_state(fitted)} in Python, and " if fitted.state else ""
        result.not_compared.append(f"{changes}fit fails: {fitted.error}")
        if result.verdict in ("match", "subprecision"):
            result.verdict = "inconclusive"
            result.reason = (
                "fit fails on keras's model, whose steps op by op are what was compared; compile it with run_eagerly, "
                "or give the step that trains it as keras_step in [train]"
            )
    elif fitted.overridden:
        result.verdict, result.first_divergence, result.causes = "inconclusive", None, []
        result.reason = (
            f"keras's model overrides {fitted.overridden}, by which it is trained otherwise than by its steps, which "
            "are compared; give a step that does the same as keras_step in [train]"
        )
    else:
        train = candidate.case.model.train if isinstance(candidate.case.model, Pair) else None
        result.causes.append(_cause(fitted, "a tf.function" if train and train.keras_step else "fit"))
        if result.verdict != "diverged":
            result.verdict, result.first_divergence = "diverged", _divergence(fitted, candidate, mapping)


def name_waiting(result: CaseResult, reference: Trace, candidate: Trace) -> None:
    """Name that the sides update after other numbers of batches.

    All that differs from the first update on follows, and so do scales of losses and gradients before.
    """
    first = result.first_divergence
    ours, theirs = (trace.manifest.training.waiting for trace in (reference, candidate))
    steps, waiting = reference.case.steps, [len(set(each)) for each in (ours, theirs)]
    if waiting[0] == waiting[1] or steps in waiting or first is None:
        return
    updates = [f"{count(steps - each, 'update')} in {count(steps, 'step')}" for each in waiting]
    evidence = f"torch's gradients wait in {_numbers(ours)}, keras's in {_numbers(theirs)}"
    cause = Cause(id=UPDATES, where=MODEL, torch=updates[0], keras=updates[1], evidence=evidence)
    before = result.causes if first.kind in ("input", "activation", "loss") else []
    result.causes = [cause, *(each for each in before if each.id not in (*SCALES, UNKNOWN))]


def _numbers(steps: Sequence[int]) -> str:
    return f"step {', '.join(map(str, steps))}" if steps else "none"


def _state(fitted: Fitted) -> str:
    return f"{', '.join(fitted.state[:MOST])}{' and more' if len(fitted.state) > MOST else ''}"


def _cause(fitted: Fitted, by: str) -> Cause:
    ends = "its output" if fitted.weight == MODEL else fitted.weight
    if fitted.state:
        kept = f"in which {_state(fitted)}, kept in Python, stays as it was when it was traced"
        values: dict[str, Any] = {"torch": "changes in every step", "keras": f"stays in the graph of {by}"}
    else:
        kept = "in which the user's code does something else"
        values = {"torch": "a step", "keras": by}
    evidence = (
        f"{by} traces keras's training step into a graph, {kept}; {ends} ends {fitted.apart:.1e} of its largest value "
        "apart from a training op by op"
    )
    return Cause(id=STATE if fitted.state else GRAPH, where=MODEL, **values, evidence=evidence)


def _divergence(fitted: Fitted, candidate: Trace, mapping: Mapping) -> Divergence:
    """Return the place of what ends furthest apart, by torch's name."""
    owners = (entry.torch[0] for entry in mapping.entries if fitted.weight in entry.keras)
    return Divergence(
        step=candidate.case.steps - 1,
        kind="activation" if fitted.weight == MODEL else "parameter",
        name=next(owners, fitted.weight),
        replica=0,
        bits=None,
        reason="keras's model is trained in graphs to another one than by the same steps op by op",
    )


def changing(states: Sequence[State]) -> list[str]:
    """Return the names of the arrays that do not keep their first state in all later ones."""
    return [name for name, array in states[0].items() if any(not _same(array, later[name]) for later in states[1:])]


def counting(states: Sequence[State]) -> list[str]:
    """Return the names of the arrays that only count passes, given one pass between two successive states."""
    histories = ((name, [state[name] for state in states]) for name in changing(states))
    return [name for name, values in histories if is_counter(values, [1] * (len(values) - 1))]


def is_counter(values: Sequence[Array], passes: Sequence[int]) -> bool:
    """Return whether whole numbers grow alike with every pass; `passes`: how many between each two values."""
    if any(value.dtype.kind not in "iu" for value in values):
        return False
    steps = zip(values[1:], values, passes, strict=False)
    growth = np.concatenate([np.ravel(now.astype(np.float64) - before) / count for now, before, count in steps])
    return bool(growth.size) and bool((growth == growth[0]).all())


def with_changing_buffers(mapping: Mapping, reference: Trace) -> Mapping:
    """Return the mapping with constants that torch's trace shows to change, but not to count passes, as `changing`."""
    changed = [name for name, values in _buffers(reference, set(mapping.constants)).items() if _has_changed(values)]
    if not changed:
        return mapping
    counter_notes = set(map(counts, changed))
    return msgspec.structs.replace(
        mapping,
        constants=[name for name in mapping.constants if name not in changed],
        changing=[*mapping.changing, *changed],
        assumptions=[sentence for sentence in mapping.assumptions if sentence not in counter_notes],
    )


def _has_changed(values: Named[int, Array]) -> bool:
    """Return whether a buffer changes in another way than counting passes; its values are given by passes made."""
    arrays = list(values.values())
    if all(_same(arrays[0], later) for later in arrays[1:]):
        return False
    return not is_counter(arrays, [now - before for before, now in itertools.pairwise(values)])


def _buffers(trace: Trace, wanted: set[str]) -> dict[str, dict[int, Array]]:
    """Return the recorded values of some buffers: by name, then by the number of training passes before them."""
    values: dict[str, dict[int, Array]] = {}
    for stem in trace.stems("high") if wanted else ():
        step = keys.step_of(stem)
        passes = 0 if step is None else step + 1
        for key, array in trace.open("high", stem).items():
            kind, name = keys.split(key)
            if kind == "buffer" and name in wanted:
                values.setdefault(name, {})[passes] = array
    return values


def _same(first: Array, second: Array) -> bool:
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")


def explain_mode(result: CaseResult, torch: Survey, keras: Survey) -> None:
    """Say which layers are not in training mode: Keras's, where the model's `call` takes no `training`, or torch's."""
    rates = {module.path: module.facts.get("rate") for module in torch.modules}
    result.causes = [_as_mode(cause, "torch") if rates.get(plain(cause.where)) else cause for cause in result.causes]
    if any(cause.id == MODES[0] for cause in result.causes):  # then each side draws another number of masks
        result.causes = [cause for cause in result.causes if cause.id != ORDER]
    said = "; keras's `call` takes no `training`, and fit calls the model without it"
    for number, cause in enumerate(result.causes if keras.is_mode_lost else ()):
        if (told := _as_mode(cause, "keras")).id in MODES:
            result.causes[number] = msgspec.structs.replace(told, evidence=told.evidence + said)


def explain_states(result: CaseResult, keras: Survey, matching: Matching | None) -> None:
    """Name state that a layer of Keras's keeps from step to step, where a later pass is the first to part."""
    first = result.first_divergence
    if not (matching and first and first.step and first.kind in ("input", "activation", "loss")):
        return
    moving = set(keras.rehearsal.changing).difference(keras.rehearsal.counting)
    layers = {plain(match.torch): plain(match.keras) for match in matching.matches}
    kept = {
        module: names
        for module, layer in layers.items()
        if layer and (names := sorted(name for name in moving if name.startswith(f"{layer}/")))
    }
    for number, cause in enumerate(result.causes):
        where = plain(cause.where)
        if cause.id == UNKNOWN and where in kept:
            evidence = f"in the first step both are alike; keras's steps change {', '.join(kept[where][:MOST])}"
            result.causes[number] = msgspec.structs.replace(
                cause, id=CARRIED, torch=KEPT[False], keras=KEPT[True], evidence=evidence
            )
        elif cause.id == CARRIED and where == "loss" and kept:
            result.causes[number] = msgspec.structs.replace(cause, where=next(iter(kept)))


def _as_mode(cause: Cause, side: str) -> Cause:
    """Return the cause of a dropout that drops nothing on a side: its rate may be the same, but it is idle."""
    if cause.id != "dropout.rate" or cause.sides[side]:
        return cause
    return msgspec.structs.replace(cause, id=MODES[0], torch=side != "torch", keras=side != "keras")


def explain_masks(result: CaseResult, torch: Survey, keras: Survey, ours: Tensors, theirs: Tensors) -> None:
    """Name masks for other sizes where training alone parts for no known cause, or for a dropout of one side alone.

    Of several dropouts, that is one which stands elsewhere on the other side. `ours`, `theirs`: of inference.
    """
    rehearsals = [side.rehearsal for side in (torch, keras)]
    drawn = [Counter(each.masks) for each in rehearsals if each.drawn]  # none of a model that could not be rehearsed
    if len(drawn) < 2 or drawn[0] == drawn[1]:
        return
    sides = [sorted(further.elements()) for further in (drawn[0] - drawn[1], drawn[1] - drawn[0])]
    named = [cause for cause in result.causes if cause.id in (UNKNOWN, ORDER) or (_is_one_sided(cause) and all(sides))]
    if named and agrees(Surveyed(torch, ours), theirs):
        values = [
            f"masks for {', '.join(map(str, sizes))} elements" if sizes else "no further masks" for sizes in sides
        ]
        evidence = "in inference both return the same; a training pass draws other masks on each side"
        if named[0].evidence and named[0].id not in (UNKNOWN, ORDER):
            evidence = f"{evidence}; {named[0].evidence}"
        named[1:] = [each for each in named[1:] if _is_one_sided(each)]  # the other place of the same dropout
        place = msgspec.structs.replace(named[0], id=PLACE, torch=values[0], keras=values[1], evidence=evidence)
        causes = [place if each is named[0] else each for each in result.causes]
        result.causes = [each for each in causes if not any(each is other for other in named[1:])]


def _is_one_sided(cause: Cause) -> bool:
    """Return whether one side drops something where the other drops nothing."""
    return cause.id == "dropout.rate" and bool(cause.torch) != bool(cause.keras)
