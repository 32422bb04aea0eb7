"""The comparison of a distributed training with the same training on a single device, in one framework.

Compared are replica 0's gradients, updates, parameters, buffers and optimizer state, and the loss of the
whole batch, which is computed from the losses of its parts.
"""

import numpy as np

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.results import Against, worst
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.words import in_words
from parity.verdict import kernel
from parity.verdict.rule import Rule, TensorVerdict
from parity.verdict.steps import Step

SAME = ("loss", "gradient", "parameter", "buffer", "optimizer_state")


def against_single(single: Trace, trace: Trace, witness: Trace | None) -> Against:
    """Compare the high runs of a distributed training with those of the same training on a single device.

    `single`: the trace of the baseline, or of another distributed training that should equal it. `witness`: a trace of
    the baseline that holds the witness run, or None. Raises TraceError.
    """
    found = Against()
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
        place = "before the first step" if number is None else f"step {number}"
        for key in step.reference_high:
            kind, name = keys.split(key)
            if kind not in SAME or name.endswith(keys.LOCAL):
                continue
            if mismatch := step.mismatch(key, (single.case.strategy, trace.case.strategy)):
                _note(found, place, key, TensorVerdict("diverged", None, by_bits=False), mismatch)
                continue
            spread = kernel.measure(step.runs(key), rule.low)
            if kind == "parameter" and before is not None:
                update = kernel.measure(step.changes(key, before), rule.low)
                stored = spread.scale * max((number or 0) - recorded, 1)
                _note(found, place, keys.key(keys.UPDATE, name), rule.high(update, stored))
            _note(found, place, key, rule.high(spread))
        if any(key.startswith("parameter/") for key in step.reference_high):
            before, recorded = step, number or 0
    return found


def _note(found: Against, place: str, key: str, judgement: TensorVerdict, reason: str = "") -> None:
    found.compared += 1
    if judgement.verdict != "match" and found.verdict == "match":
        found.reason = (
            f"{place}: {in_words(*keys.split(key))}: {reason or f'{max(judgement.bits or 0.0, 0.0):.1f} bits'}"
        )
    found.verdict = worst([found.verdict, judgement.verdict])
    bits = judgement.bits
    if judgement.by_bits and bits is not None and (found.worst_bits is None or bits < found.worst_bits):
        found.worst_bits, found.worst_name = bits, key


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
    """Return the loss of the whole batch: the losses of all micro-batches, weighted by their numbers of samples.

    Raises TraceError if the trace does not tell these numbers.
    """
    if trace.case.loss.reduction == "sum" or not all(losses):  # sums add up; a single loss is the whole batch's
        return np.asarray(sum(loss for own in losses for loss in own))
    if not all("sample/indices" in replica for replica in replicas):
        raise TraceError(f"{trace.folder}: does not say which samples each replica was given")
    counts = [len(replica["sample/indices"]) for replica in replicas]
    sizes = [[len(part) for part in np.array_split(range(n), len(own))] for n, own in zip(counts, losses, strict=True)]
    parts = [size * loss for row, own in zip(sizes, losses, strict=True) for size, loss in zip(row, own, strict=True)]
    return np.asarray(sum(parts) / sum(counts))
