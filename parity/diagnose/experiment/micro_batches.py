"""Causes that the gradients of an update tell which are a sum of those of several steps, as of micro-batches.

PyTorch adds them up itself: what a step without an update has recorded holds those of the steps before it. A sum in
which each part has another weight than on the other side tells what was done to the parts.
"""

import itertools
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.clipping import ROOM, is_round
from parity.diagnose.experiment.later import Parted
from parity.diagnose.experiment.ratios import NORMALISED, weights_of
from parity.diagnose.solve import multiple
from parity.results import Cause
from parity.trace.manifest import Trace

CLIPPED: Final = "clip.before_accumulation"
SAME: Final = 1e-6  # relative, of factors


def summed(asked: Parted, traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of the gradients of an update to which both sides have added those of the same steps."""
    torch, keras = (set(trace.manifest.training.waiting) for trace in traces)
    steps = [asked.step]
    while steps[0] - 1 in torch & keras:
        steps.insert(0, steps[0] - 1)
    recorded = [[trace.of_kind("gradient", step) for step in steps] for trace in traces]
    names = sorted(set.intersection(*(set(each) for side in recorded for each in side)))
    if len(steps) < 2 or not names:
        return None
    mine, theirs = ([np.concatenate([np.ravel(each[name]) for name in names]) for each in side] for side in recorded)
    if any(len(each) != len(mine[0]) for each in theirs):
        return None
    return _normalised(steps, mine, theirs, traces) or _clipped(asked, mine, theirs[-1])


def _normalised(steps: list[int], mine: list[Array], theirs: list[Array], traces: tuple[Trace, Trace]) -> Cause | None:
    """Return the cause of parts that differ by a factor each, as their losses do where these are recorded."""
    losses = [[float(loss.sum()) for step in steps for loss in each.of_kind("loss", step).values()] for each in traces]
    weights, is_exact = weights_of(theirs[-1], mine)
    shares = np.cumsum(weights[::-1])[::-1]
    first = multiple(mine[0], theirs[0])
    means = (1, len(steps), 1 / len(steps))  # one side may keep the sum, the other the mean
    if not is_exact or not first or not any(np.isclose(shares[0], first * mean, SAME) for mean in means):
        return None
    if np.allclose(shares, shares[0], SAME) or multiple(*map(np.array, losses)):
        return None
    factors = first / shares[0] * shares
    said = ", ".join(f"{factor:.6g} times in step {step}" for factor, step in zip(factors, steps, strict=True))
    evidence = f"of the gradients that are added, keras's are {said} those of torch's"
    return Cause(id=NORMALISED, where="loss", torch=1.0, keras=float(f"{factors[0]:.6g}"), evidence=evidence)


def _clipped(asked: Parted, mine: list[Array], total: Array) -> Cause | None:
    """Return the cause of parts that Keras's side clips before it adds them, while torch's clips their sum."""
    limit = float(np.linalg.norm(mine[-1]))
    parts = [mine[0], *(after - before for before, after in itertools.pairwise(mine[:-1]))]
    weights, is_exact = weights_of(total, [*parts, mine[-1]])
    shares = np.array([min(1.0, limit / np.linalg.norm(part)) for part in parts])
    last = shares - weights[:-1]  # the share of the last part, as each other one tells it
    if not is_exact or not is_round(limit) or not np.allclose(last, last[0], ROOM) or weights[-1] * last[0] <= 0:
        return None
    length = np.linalg.norm(mine[-1] * weights[-1] / last[0] - sum(parts))
    if abs(min(1.0, limit / length) - last[0]) > ROOM or min(*shares, last[0]) > 1 - ROOM:
        return None
    values = f"their sum, at {limit:.5g}", f"each part, at {limit:.5g}"
    evidence = "the gradients of several steps are added, and each side's follow from these"
    return Cause(id=CLIPPED, where=asked.where, torch=values[0], keras=values[1], evidence=evidence)
