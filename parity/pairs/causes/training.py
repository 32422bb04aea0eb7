"""Find what only the training tells of a pair: buffers that change, a `fit` that trains otherwise, moving averages.

Keras has no counterpart for these buffers of torch's. The rehearsal makes only two passes; a buffer that begins to
change later is noticed once the training was recorded. And `fit` may train a Keras model otherwise than its recorded
steps, which ran op by op.

An average of weights, as target networks and EMA models keep them, moves by a part of the way to another weight, its
source: after = before + (1 - rate) * (source - before), where the source is that behind the optimizer's update, or
before it.
"""

import itertools
from collections.abc import Mapping as Named
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from parity.config.pair import UNKNOWN, Pair
from parity.core.arrays import Array, Floats
from parity.core.wording import count
from parity.results import CaseResult, Cause, Divergence
from parity.trace import keys
from parity.trace.keys import MODEL
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping, counts
from parity.trace.training import Fitted

STATE = "fit.python_state"  # what Python keeps is frozen in the graph that fit makes
GRAPH = "fit.graph"  # fit computes otherwise for another reason
UPDATES = "accumulation.updates"  # after how many batches the gradients are applied
SCALES = ("loss.normalisation", "loss.scale", "gradient.scale")
MOST = 3  # names in a sentence
EXACT: Final = 1e-9  # relative, what is left of an average in float64
ROUNDING: Final = 2.0**-48  # relative, what an average of two equal numbers may move
BEHIND, BEFORE = "the updated weights", "the weights before the update"
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
    if first.kind == "loss" and _is_divided(*(trace.of_kind("loss", first.step) for trace in (reference, candidate))):
        before = [each for each in before if not each.where.startswith("loss")]
    result.causes = [cause, *(each for each in before if each.id not in (*SCALES, UNKNOWN))]


def _is_divided(mine: State, theirs: State) -> bool:
    """Return whether all losses differ by one whole number, by which a side divides those that wait for each other."""
    ratios = [float(theirs[name].sum() / mine[name].sum()) for name in mine if name in theirs and mine[name].sum()]
    counts = {float(f"{max(ratio, 1 / ratio):.9g}") for ratio in ratios if ratio > 0}
    return len(counts) == 1 and min(ratios) > 0 and counts.pop().is_integer()


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


class Average(NamedTuple):
    """How a weight moved in the first step: as an average of which others, and how much of the old value stays."""

    source: str
    of: str
    rate: float


class _Moved(NamedTuple):
    """The parameters of a side by name, before and after the first step."""

    before: dict[str, Floats]
    after: dict[str, Floats]


def name_averages(result: CaseResult, torch: Trace, keras: Trace) -> None:
    """Name the rate of a moving average, or the order of it and the update, where a weight's cause is not known."""
    whole = torch.whole(), keras.whole()
    result.causes = [_named(cause, *whole) if cause.id == UNKNOWN else cause for cause in result.causes]


def _named(cause: Cause, *traces: Trace) -> Cause:
    ours, theirs = (_Moved(trace.of_kind("parameter", None), trace.of_kind("parameter", 0)) for trace in traces)
    if any(cause.where not in held for held in (*ours, *theirs)):
        return cause
    if (torch := _average(cause.where, ours)) is None:
        return cause
    keras = _average(cause.where, theirs, torch.source)
    if keras is None or (torch.of, round(torch.rate, 9)) == (keras.of, round(keras.rate, 9)):
        return cause
    evidence = f"it is the moving average of {torch.source}: each side's move in the first step is reproduced"
    if torch.of != keras.of:
        return Cause(id="average.order", where=cause.where, torch=torch.of, keras=keras.of, evidence=evidence)
    torch_rate, keras_rate = (float(f"{each.rate:.9g}") for each in (torch, keras))
    return Cause(id="average.rate", where=cause.where, torch=torch_rate, keras=keras_rate, evidence=evidence)


def _average(name: str, side: _Moved, source: str = "") -> Average | None:
    """Return how a weight moved, as an average of `source` or of any other of its shape; None if as none."""
    before, move = side.before[name], side.after[name] - side.before[name]
    is_still = np.abs(move).max(initial=0.0) <= ROUNDING * np.abs(before).max(initial=0.0)
    for averaged in [source] if source else [each for each in side.before if each != name and each in side.after]:
        if side.before[averaged].shape != before.shape:
            continue
        for of, value in ((BEHIND, side.after[averaged]), (BEFORE, side.before[averaged])):
            distance = value - before
            if not distance.any():
                if of == BEFORE and source and is_still:  # it began as a copy
                    return Average(averaged, of, 1.0)
                continue
            share = float(np.vdot(distance, move) / np.vdot(distance, distance))
            if not is_still and np.abs(move - share * distance).max() <= EXACT * np.abs(move).max():
                return Average(averaged, of, 1 - share)
    return None


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
    return replace(
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
