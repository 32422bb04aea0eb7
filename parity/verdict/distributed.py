"""The comparison of trainings of one framework that differ only in how they are distributed.

One is a distributed training; the other is the same training on a single device, or distributed in another way.
Compared are replica 0's gradients, updates, parameters, buffers and optimizer state, and the loss of the whole batch,
which is computed from the losses of its parts.
"""

import numpy as np
from msgspec.structs import replace

from parity.config.devices import baseline, why_no_baseline
from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.results import Against, CaseResult, worst
from parity.trace import keys
from parity.trace.keys import in_words
from parity.trace.manifest import Tensors, Trace
from parity.verdict import kernel
from parity.verdict.rule import Rule, TensorVerdict
from parity.verdict.steps import Step
from parity.verdict.traces import difference

SAME = ("loss", "gradient", "parameter", "buffer", "optimizer_state")


def against_single(single: Trace, trace: Trace, witness: Trace | None) -> Against:
    """Compare the high runs of a distributed training with those of the same training on a single device.

    `single`: the trace of the baseline, or of another distributed training that should equal it. `witness`: a trace of
    the baseline that holds the witness run, or None. Raises TraceError.
    """
    against = Against()
    rule = Rule(trace.case.precision)
    before: Step | None = None
    recorded = 0
    for stem in single.stems("high"):
        step = Step(
            _whole(single, "high", stem),
            _whole(trace, "high", stem),
            _whole(single, "low", stem),
            _whole(trace, "low", stem),
            witness.open("witness", stem) if witness else None,
        )
        number = keys.step_of(stem)
        when = "before the first step" if number is None else f"step {number}"
        for key in step.reference_high:
            kind, name = keys.split(key)
            if kind not in SAME or name.endswith(keys.LOCAL):
                continue
            if mismatch := step.mismatch(key, (single.case.strategy, trace.case.strategy)):
                _note(against, when, key, TensorVerdict("diverged"), mismatch)
                continue
            spread = kernel.measure(step.runs(key), rule.low)
            if kind == "parameter" and before is not None:
                update = kernel.measure(step.changes(key, before), rule.low)
                stored = spread.scale * max((number or 0) - recorded, 1)
                _note(against, when, keys.key(keys.UPDATE, name), rule.high(update, stored))
            _note(against, when, key, rule.high(spread))
        if any(key.startswith("parameter/") for key in step.reference_high):
            before, recorded = step, number or 0
    return against


def _note(against: Against, when: str, key: str, judgement: TensorVerdict, reason: str = "") -> None:
    against.compared += 1
    if judgement.verdict != "match" and against.verdict == "match":
        why = reason or f"{max(judgement.bits or 0.0, 0.0):.1f} bits"
        against.reason = f"{when}: {in_words(*keys.split(key))}: {why}"
    against.verdict = worst([against.verdict, judgement.verdict])
    bits = judgement.bits
    if judgement.by_bits and bits is not None and (against.worst_bits is None or bits < against.worst_bits):
        against.worst_bits, against.worst_name = bits, key


def _whole(trace: Trace, run: str, stem: str) -> Tensors:
    """Return replica 0's tensors of a step, with the loss of the whole batch instead of the replica's own."""
    replicas = [trace.open(run, stem, replica) for replica in range(trace.replicas)]
    tensors = {key: array for key, array in replicas[0].items() if not key.startswith("loss/")}
    losses = [[array for key, array in replica.items() if key.startswith("loss/")] for replica in replicas]
    if len(losses) == 1 and len(losses[0]) < 2:
        return replicas[0]
    if losses[0]:
        tensors[keys.key("loss", "loss")] = _loss(trace, replicas, losses)
    return tensors


def _loss(trace: Trace, replicas: list[Tensors], losses: list[list[Array]]) -> Array:
    """Return the loss of the whole batch: those of its parts, weighted by their samples. Raises TraceError."""
    if trace.case.loss.reduction == "sum" or not all(losses):  # sums add up; a single loss is the whole batch's
        return np.asarray(sum(loss for own in losses for loss in own))
    if not all("sample/indices" in replica for replica in replicas):
        raise TraceError(f"{trace.folder}: does not say which samples each replica was given")
    counts = [len(replica["sample/indices"]) for replica in replicas]
    sizes = [[len(part) for part in np.array_split(range(n), len(own))] for n, own in zip(counts, losses, strict=True)]
    parts = [size * loss for row, own in zip(sizes, losses, strict=True) for size, loss in zip(row, own, strict=True)]
    return np.asarray(sum(parts) / sum(counts))


def across(reference: Trace, candidate: Trace) -> CaseResult:
    """Compare two traces that differ in strategy or devices. Raises TraceError if they are not the same mathematics."""
    single, trace = sorted((reference, candidate), key=lambda trace: trace.case.distribution.is_distributed)
    _check(single, trace)
    witness = single if "witness" in single.manifest.runs else None
    outcome = against_single(single, trace, witness)
    return CaseResult(
        case=f"{_spread(trace.case)} against {_spread(single.case)}",
        verdict=outcome.verdict,
        reason=outcome.reason,
        against_single={trace.backend: outcome},
        devices={"reference": single.manifest.layout.devices, "candidate": trace.manifest.layout.devices},
    )


def _check(single: Trace, trace: Trace) -> None:
    folders = f"({single.folder}, {trace.folder})"
    precisions = single.case.precision, trace.case.precision
    if precisions[0] != precisions[1]:
        raise TraceError(
            f"the traces are of {precisions[0]} and {precisions[1]}: weights and data are rounded to the run "
            f"precision, so that the float64 runs differ too {folders}; record both with the same --precision"
        )
    left, right = _alone(single.case), _alone(trace.case)
    if left != right:
        raise TraceError(
            f"the traces are of different cases: {difference(left, right)} {folders}; those of one framework may "
            "differ in strategy, devices and accumulate"
        )
    for each in (single, trace):
        if each.case.distribution.is_distributed and (reason := why_no_baseline(each.case)):
            raise TraceError(f"{_spread(each.case)} is another computation than the other trace: {reason} {folders}")
    data = single.manifest.data, trace.manifest.data
    if data[0] != data[1]:
        raise TraceError(f"the traces are of different data: {difference(*data)} {folders}")


def _alone(case: Case) -> Case:
    """Return the case without the fields in which the two may differ."""
    return replace(baseline(case), name="", devices=1)


def _spread(case: Case) -> str:
    """Return a case's name together with its number of devices and micro-batches."""
    if not case.distribution.is_distributed:
        return case.name
    parts = f", {case.accumulate} micro-batches" if case.accumulate > 1 else ""
    return f"{case.name} on {case.devices}{parts}"
