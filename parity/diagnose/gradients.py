"""Causes in one gradient, found by comparing it with the other side's: stopped, scaled, negated."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from parity.config import schema, shards
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices
from parity.diagnose.observation import Gradient
from parity.diagnose.reductions import FACTORS, Values, times
from parity.trace import keys

# How a gradient, or one row of it, compares with the other side's. Where only the other side's is zero, its correct
# value is unknown, so all that can be said is that it flows.
SAME, STOPPED, FLOWS = "as on the other side", "stopped", "flows"
# Factor of the previous step's gradient in this one, if one side did not set its gradients to zero.
KEPT: Final = {"added to that of the step before": 1.0, "without that of the step before": -1.0}


def _predict(
    gradient: Gradient, whole: str, sent: str, kept: str, row: str, transposed: bool, **factors: float
) -> dict[str, Array]:
    seen = gradient.seen["gradient"].value
    if {whole, sent} != {SAME}:
        return {"gradient": np.zeros_like(seen) if STOPPED in (whole, sent) else seen}
    predicted = (gradient.other.T if transposed else gradient.other) * math.prod(factors.values())
    if kept != SAME and gradient.before is not None:
        predicted = predicted + KEPT[kept] * gradient.before
    if row != SAME:
        number, state = row.rsplit(" ", 1)
        predicted[int(number)] = 0.0 if state == STOPPED else seen[int(number)]
    return {"gradient": predicted}


def _stopped(staged: bool) -> Values:
    """Return the values of a trait that says whether a gradient is zero on this side only, or on the other only.

    Args:
        staged: whether the trait is for pipeline stages, where the gradient was lost between two of them: another
            cause.
    """

    def values(gradient: Gradient, settings: Settings) -> Iterator[str]:
        yield SAME
        flows_here, flows_there = gradient.seen["gradient"].value.any(), gradient.other.any()
        if flows_here != flows_there and staged == gradient.case.distribution.is_staged:
            yield FLOWS if flows_here else STOPPED

    return values


def _not_zeroed(gradient: Gradient, settings: Settings) -> tuple[str, ...]:
    return (SAME,) if gradient.before is None else (SAME, *KEPT)


def _rows(gradient: Gradient, settings: Settings) -> Iterator[str]:
    """Yield the only row of an embedding that has a gradient on one side and none on the other."""
    yield SAME
    seen, other = gradient.seen["gradient"].value, gradient.other
    if "embedding" in gradient.name and seen.ndim == 2 and seen.shape == other.shape:
        has_gradient = np.any(seen, axis=1)
        differing = np.flatnonzero(has_gradient != np.any(other, axis=1))
        if len(differing) == 1:
            yield f"{differing[0]} {FLOWS if has_gradient[differing[0]] else STOPPED}"


def _transpositions(gradient: Gradient, settings: Settings) -> Iterable[bool]:
    shape = gradient.other.shape
    return (False, True) if len(shape) == 2 and shape[0] == shape[1] else (False,)


def _loss_sizes(gradient: Gradient, settings: Settings) -> Iterable[float]:
    """Return the factors by which a sum differs from a mean over the samples or over all values."""
    batch = gradient.case.data.batch
    return dict.fromkeys((1.0, float(batch), float(batch * _values_per_sample(gradient.case)), 1 / batch))


def _values_per_sample(case: schema.Case) -> int:
    """Return the number of values that a sample contributes to the mean of a loss."""
    match case.model:
        case schema.Transformer():
            return case.data.length
        case schema.ResidualBlock():
            return case.model.out_channels * case.data.size**2
        case schema.LinearStack():
            return case.model.width
    return getattr(case.model, "outputs", 1) if case.loss.kind == "mse" else 1


def _equal_replica_weights(gradient: Gradient, settings: Settings) -> Iterator[float]:
    """Yield factors by which a replica's gradient differs if replicas, not samples, have equal weight.

    Only if the batch is divided into parts of different sizes do they differ from 1.
    """
    yield 1.0
    sizes = [len(part) for part in shards.split(range(gradient.case.data.batch), gradient.case)]
    if gradient.name.endswith(keys.LOCAL):
        factors = [sum(sizes) / (len(sizes) * size) for size in sizes if size]
        yield from dict.fromkeys([*factors, *(1 / factor for factor in factors)])


def _scales(gradient: Gradient, settings: Settings) -> Iterator[float]:
    """Yield the factor between the two gradients, where nothing else can have scaled them."""
    yield 1.0
    if not gradient.name.endswith(keys.LOCAL) and (gradient.case.clip_norm or gradient.case.replicas > 1):
        return  # a reduction or clipping may have scaled it: reductions.py asks about those
    unscaled = _predict(gradient, **{**settings, "scale": 1.0})["gradient"]
    factor = solve.scale(unscaled, gradient.seen["gradient"].value)
    if factor is not None:
        yield factor


FORMULA: Final[Formula[Gradient]] = Formula(
    _predict,
    (
        Trait("whole", "gradient.stopped", _stopped(staged=False)),
        Trait("sent", "send_recv.gradient", _stopped(staged=True)),
        Trait("kept", "gradient.kept", _not_zeroed),
        Trait("row", "embedding.padding_idx", _rows),
        Trait("transposed", "gradient.transposed", _transpositions),
        Trait("sign", "gradient.sign", choices(1.0, -1.0)),
        Trait("summed_passes", "accumulation.normalisation", times(lambda case: case.accumulate)),
        Trait("scaled_passes", "accumulation.normalisation", times(lambda case: 1 / case.accumulate)),
        *FACTORS,
        Trait("weighed", "batch.uneven", _equal_replica_weights),
        Trait("loss_size", "loss.sum", _loss_sizes),
        Trait("scale", "gradient.scale", _scales),
    ),
)
