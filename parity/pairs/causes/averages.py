"""Name what differs in moving averages of weights, as target networks and EMA models keep them.

An average moves by a part of the way to another weight, its source: after = before + (1 - rate) * (source - before),
where the source is that behind the optimizer's update, or before it.
"""

from typing import Final, NamedTuple

import numpy as np

from parity.config.pair import UNKNOWN
from parity.core.arrays import Floats
from parity.results import CaseResult, Cause
from parity.trace.manifest import Trace

EXACT: Final = 1e-9  # relative, what is left of an average in float64
ROUNDING: Final = 2.0**-48  # relative, what an average of two equal numbers may move
BEHIND, BEFORE = "the updated weights", "the weights before the update"


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
