"""Causes that the numbers of two traces tell: a loss, or all updates, times a factor; a penalty of weights."""

import fractions
from collections.abc import Sequence
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.core.wording import listed
from parity.diagnose.experiment.later import ADDED, MOST, NOISE, Parted, both
from parity.diagnose.solve import is_times
from parity.results import Cause
from parity.trace import keys
from parity.trace.manifest import Trace

NORMALISED, RESCALED = "loss.normalisation", "schedule.rate"
MOST_COUNTED: Final = 256  # elements whose number may be told
EXACT: Final = 1e-8  # of a ratio that is told as a fraction


def normalised(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of a loss that is divided by another number: it and all gradients differ by one factor."""
    torch, keras = (trace.of_kind("gradient", asked.step) for trace in traces)
    pairs = [(torch[name], keras[name]) for name in torch if name in keras and not name.endswith(keys.EVIDENCE)]
    largest = max((np.abs(mine).max(initial=0.0) for mine, _ in pairs), default=0.0)
    pairs = [pair for pair in pairs if np.abs(pair[0]).max(initial=0.0) > NOISE * largest]
    loss, theirs = (trace.of_kind("loss", asked.step)[asked.name] for trace in traces)
    ratio = float(theirs / loss) if loss else 0.0
    if not pairs or any(not is_times(*pair, ratio) for pair in pairs):
        return None
    share = fractions.Fraction(ratio).limit_denominator(MOST_COUNTED)
    factor = f"{share} times" if abs(float(share) - ratio) <= EXACT * ratio else f"{ratio:.6g} times"
    evidence = f"keras's loss and all its gradients are {factor} those of torch's"
    return Cause(id=NORMALISED, where=asked.where, torch=1.0, keras=float(f"{ratio:.6g}"), evidence=evidence)


def rescaled(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of updates that differ by one factor, that of another learning rate in this step."""
    updates = [both(asked._replace(name=name), traces) for name in traces[0].of_kind("parameter", None)]
    moved = [(torch, keras) for torch, keras in updates if torch is not None and keras is not None and torch.any()]
    largest = max(moved, key=lambda sides: np.abs(sides[0]).max(), default=None)
    if largest:
        moved = [sides for sides in moved if np.abs(sides).max() > NOISE * np.abs(largest).max()]
    factor = _factor(moved)
    if factor is None or factor == 1 or len(moved) < 2:
        return None
    evidence = f"in step {asked.step}, keras moves every parameter {factor:.6g} times as far as torch"
    return Cause(id=RESCALED, where=asked.where, torch=1.0, keras=float(f"{factor:.6g}"), evidence=evidence)


def penalised(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of a loss to which one side adds a multiple of the squares, or of the magnitudes, of weights.

    The gradients of these weights then differ by that multiple of them, or of their signs, and no other gradients do.
    """
    if asked.step:
        return None
    initial = traces[0].of_kind("parameter", None)
    torch, keras = (trace.of_kind("gradient", 0) for trace in traces)
    weights = {name: initial[name] for name in torch if name in keras and name in initial}
    apart = {name: np.asarray(keras[name] - torch[name]) for name in weights}
    largest = max((np.abs(torch[name]).max(initial=0.0) for name in weights), default=0.0)
    apart = {name: each for name, each in apart.items() if np.abs(each).max(initial=0.0) > NOISE * largest}
    losses = [trace.of_kind("loss", 0)[asked.name] for trace in traces]
    more = float(losses[1] - losses[0])
    signs = {name: np.sign(weight) for name, weight in weights.items()}
    for what, made, share in (("squares", weights, 0.5), ("magnitudes", signs, 1.0)):
        factor = _factor([(made[name], each) for name, each in apart.items()]) or 0.0
        total = sum(share * factor * float(np.vdot(made[name], weights[name])) for name in apart)
        if factor and abs(total - more) <= NOISE**0.5 * abs(more):
            side, without = ("keras", "torch") if factor > 0 else ("torch", "keras")
            of = listed(list(apart), MOST)
            added = f"{abs(share * factor):.6g} times the {what}"
            evidence = f"{side} adds {added} of {of} to the loss, {without} does not"
            mine, theirs = ("adds none", added) if factor > 0 else (added, "adds none")
            return Cause(id=ADDED, where=asked.where, torch=mine, keras=theirs, evidence=evidence)
    return None


def _factor(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    """Return the one factor by which the second array of each pair is a multiple of the first; None if none is."""
    largest = max(pairs, key=lambda pair: float(np.abs(pair[0]).max(initial=0.0)), default=None)
    if largest is None or not largest[0].any():
        return None
    factor = float(np.vdot(*largest) / np.vdot(largest[0], largest[0]))
    return factor if all(is_times(*pair, factor) for pair in pairs) else None
