"""Causes that the numbers of two traces tell: a loss, or all updates, times a factor; a penalty of weights."""

import fractions
import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.core.wording import listed
from parity.diagnose.experiment.later import ADDED, MOST, NOISE, Parted, both
from parity.diagnose.formula import largest as largest_of
from parity.diagnose.solve import ENOUGH, is_times
from parity.results import Cause
from parity.trace import keys
from parity.trace.manifest import Trace

NORMALISED, SCALED = "loss.normalisation", "loss.scale"
RESCALED, KEPT = "schedule.rate", "gradient.kept"
VARIANCE: Final = "batch_norm.running_variance"
FEWEST: Final = 4  # channels that tell
MOST_COUNTED: Final = 256  # elements whose number may be told
RATE: Final = "learning_rate"  # as it is recorded, of the next step
EXACT: Final = 1e-8  # of a ratio that is told as a fraction, and of gradients that are a sum of others
SMALL: Final = 1e-3  # the weight of a part that tells nothing


def normalised(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of a loss (of several, their sum) and gradients that all differ by one factor.

    Where a step has several losses, the gradients of the others agree.
    """
    torch, keras = (trace.of_kind("gradient", asked.step) for trace in traces)
    pairs = [(torch[name], keras[name]) for name in torch if name in keras and not name.endswith(keys.EVIDENCE)]
    largest = max((largest_of(mine) for mine, _ in pairs), default=0.0)
    pairs = [pair for pair in pairs if largest_of(pair[0]) > NOISE * largest]
    loss, theirs = (trace.of_kind("loss", asked.step).get(asked.name) for trace in traces)
    if loss is None or theirs is None:  # one of several in a step
        return None
    if len(traces[0].of_kind("loss", asked.step)) > 1:
        pairs = [pair for pair in pairs if not is_times(*pair, 1.0)]
    ratio = float(theirs.sum() / loss.sum()) if loss.any() else 0.0
    number = float(f"{ratio:.6g}")
    if not pairs or number == 1 or any(not is_times(*pair, ratio) for pair in pairs):
        return None
    share = fractions.Fraction(ratio).limit_denominator(MOST_COUNTED)
    factor = f"{share} times" if abs(float(share) - ratio) <= EXACT * abs(ratio) else f"{number:g} times"
    whole = "" if theirs.size == loss.size else f", with the sum of the {theirs.size} numbers of the loss"
    evidence = f"keras's loss and all its gradients are {factor} those of torch's{whole}"
    return Cause(id=NORMALISED if ratio > 0 else SCALED, where=asked.where, torch=1.0, keras=number, evidence=evidence)


def scheduled(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of learning rates that part behind a step."""
    for step in range(asked.step + 1 if asked.where == RATE else 0):
        torch, keras = (trace.of_kind("optimizer_state", step).get(RATE) for trace in traces)
        if torch is not None and keras is not None and not np.isclose(torch, keras, rtol=EXACT, atol=0):
            evidence = f"the learning rate behind step {step}"
            return Cause(id=RESCALED, where=RATE, torch=float(torch), keras=float(keras), evidence=evidence)
    return None


def rescaled(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of updates that differ by one factor, that of another learning rate in this step."""
    updates = [both(asked._replace(name=name), traces) for name in traces[0].of_kind("parameter", None)]
    moved = [(torch, keras) for torch, keras in updates if torch is not None and keras is not None and torch.any()]
    largest = max(moved, key=lambda sides: largest_of(sides[0]), default=None)
    if largest:
        moved = [sides for sides in moved if np.abs(sides).max() > NOISE * np.abs(largest).max()]
    factor = _factor(moved)
    if factor is None or len(moved) < 2 or (keras := float(f"{factor:.6g}")) == 1:
        return None
    evidence = f"in step {asked.step}, keras moves every parameter {keras:g} times as far as torch"
    return Cause(id=RESCALED, where=asked.where, torch=1.0, keras=keras, evidence=evidence)


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
    largest = max((largest_of(torch[name]) for name in weights), default=0.0)
    apart = {name: each for name, each in apart.items() if largest_of(each) > NOISE * largest}
    loss, theirs = (trace.of_kind("loss", 0).get(asked.name) for trace in traces)
    if loss is None or theirs is None:
        return None
    more = float(theirs - loss)
    signs = {name: np.sign(weight) for name, weight in weights.items()}
    for what, made, share in (("squares", weights, 0.5), ("magnitudes", signs, 1.0)):
        factor = _factor([(made[name], each) for name, each in apart.items()]) or 0.0
        total = sum(share * factor * float(np.vdot(made[name], weights[name])) for name in apart)
        if factor and abs(total - more) <= NOISE**0.5 * abs(more):
            side, without = ("keras", "torch") if factor > 0 else ("torch", "keras")
            of = listed(list(apart), MOST)
            added = f"{abs(share * factor):.6g} times the {what}"
            evidence = f"{side} adds {added} of {of} to the loss, {without} does not"
            values = ("adds none", added) if factor > 0 else (added, "adds none")
            return Cause(id=ADDED, where=asked.where, torch=values[0], keras=values[1], evidence=evidence)
    return None


def kept(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of gradients to which one side adds those of an earlier update, which it has not set to zero.

    Both may have been clipped since: so the two may be added with any weights, the same for all parameters that differ.
    One of several optimizers may be that which has not.
    """
    steps = [{step: trace.of_kind("gradient", step) for step in range(asked.step + 1)} for trace in traces]
    torch, keras = (of[asked.step] for of in steps)
    names = sorted(name for name in torch if name in keras and not is_times(torch[name], keras[name], 1.0))
    waiting = {step for trace in traces for step in trace.manifest.training.waiting}  # parts of a sum that is meant
    earlier = [step for step in range(asked.step) if all(names and set(names) <= of[step].keys() for of in steps)]
    earlier = [step for step in earlier if step not in waiting]
    for step, side in itertools.product(earlier[::-1], (0, 1)):
        gradients = steps[side][asked.step], steps[1 - side][asked.step], steps[side][step]
        total, *parts = (np.concatenate([np.ravel(each[name]) for name in names]) for each in gradients)
        if _is_sum(total, parts):
            values = ["begins anew", "begins anew"]
            values[side] = "added to those before"
            evidence = f"in step {asked.step}, its gradients add the other side's to its own of step {step}"
            return Cause(id=KEPT, where=asked.where, torch=values[0], keras=values[1], evidence=evidence)
    return None


def unbiased(asked: Parted, traces: tuple[Trace, Trace]) -> list[Cause]:
    """Return the causes of running variances to which torch adds those of a batch by n - 1, and Keras by n.

    However often a norm is called in a step, what the sides add to the old variance differs by n / (n - 1).
    """
    before = traces[0].of_kind("buffer", None)
    torch, keras = (trace.of_kind("buffer", asked.step) for trace in traces)
    causes = []
    for name in torch:
        module, _, own = name.rpartition(".")
        if own == "running_var" and name in keras and name in before and torch[name].size >= FEWEST:
            count = _divisor(before[name], torch[name], keras[name])
            evidence = f"what torch adds is n / (n - 1) times what keras adds in each channel, with n = {count}"
            if count:
                causes.append(Cause(id=VARIANCE, where=module, torch="unbiased", keras="biased", evidence=evidence))
    return causes


def _divisor(before: Array, torch: Array, keras: Array) -> int:
    """Return the n of the n / (n - 1) by which what is added to a part of a moving average differs; 0 if none does."""
    (ratio, part), is_exact = weights_of(torch, [keras, before])
    count = round(ratio / (ratio - 1)) if ratio > 1 + EXACT else 0
    is_whole = count > 1 and abs(ratio * (count - 1) / count - 1) <= EXACT
    return count if is_exact and is_whole and 0 <= part / (1 - ratio) <= 1 else 0


def _is_sum(total: Array, parts: Sequence[Array]) -> bool:
    """Return whether an array is a sum of others, each with a positive weight."""
    if len(total) < ENOUGH or any(len(part) != len(total) for part in parts):
        return False
    weights, is_exact = weights_of(total, parts)
    return is_exact and bool(weights.min() > SMALL)


def weights_of(total: Array, parts: Sequence[Array]) -> tuple[Array, bool]:
    """Return the weights with which the sum of arrays comes nearest to another one, and whether it is that one."""
    base = np.stack(parts, 1)
    weights = np.linalg.lstsq(base, total, rcond=None)[0]
    return weights, bool(np.abs(base @ weights - total).max() <= EXACT * np.abs(total).max())


def _factor(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    """Return the one factor by which the second array of each pair is a multiple of the first; None if none is."""
    largest = max(pairs, key=lambda pair: largest_of(pair[0]), default=None)
    if largest is None or not largest[0].any():
        return None
    factor = float(np.vdot(*largest) / np.vdot(largest[0], largest[0]))
    return factor if all(is_times(*pair, factor) for pair in pairs) else None
