"""Causes in one gradient, by the other side's, where forward agreed: stopped, scaled, turned round."""

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

# A gradient, or one row of it, beside the other side's. Where only the other's is zero, what it should
# have been is not known: that it flows is all there is to say.
SAME, STOPPED, FLOWS = "as the other's", "stopped", "flows"
# Whether the gradients of the step before were set to zero.
KEPT: Final = {"on top of the step before's": 1.0, "without the step before's": -1.0}


def _predict(
    gradient: Gradient, whole: str, sent: str, kept: str, row: str, transposed: bool, **factors: float
) -> dict[str, Array]:
    seen = gradient.seen["gradient"].value
    if {whole, sent} != {SAME}:
        return {"gradient": np.zeros_like(seen) if STOPPED in (whole, sent) else seen}
    made = (gradient.other.T if transposed else gradient.other) * math.prod(factors.values())
    if kept != SAME and gradient.before is not None:
        made = made + KEPT[kept] * gradient.before
    if row != SAME:
        number, state = row.rsplit(" ", 1)
        made[int(number)] = 0.0 if state == STOPPED else seen[int(number)]
    return {"gradient": made}


def _stops(staged: bool) -> Values:
    """Zero everywhere on one side only; between stages the cause is another."""

    def values(gradient: Gradient, settings: Settings) -> Iterator[str]:
        yield SAME
        here, there = gradient.seen["gradient"].value.any(), gradient.other.any()
        if here != there and staged == (gradient.case.strategy in schema.STAGED):
            yield FLOWS if here else STOPPED

    return values


def _kept(gradient: Gradient, settings: Settings) -> tuple[str, ...]:
    return (SAME,) if gradient.before is None else (SAME, *KEPT)


def _rows(gradient: Gradient, settings: Settings) -> Iterator[str]:
    """The one row of an embedding that has a gradient on one side only."""
    yield SAME
    seen, other = gradient.seen["gradient"].value, gradient.other
    if "embedding" in gradient.name and seen.ndim == 2 and seen.shape == other.shape:
        here = np.any(seen, axis=1)
        apart = np.flatnonzero(here != np.any(other, axis=1))
        if len(apart) == 1:
            yield f"{apart[0]} {FLOWS if here[apart[0]] else STOPPED}"


def _square(gradient: Gradient, settings: Settings) -> Iterable[bool]:
    shape = gradient.other.shape
    return (False, True) if len(shape) == 2 and shape[0] == shape[1] else (False,)


def _loss_sizes(gradient: Gradient, settings: Settings) -> Iterable[float]:
    """Samples, and values that a mean is taken over."""
    batch = gradient.case.data.batch
    return dict.fromkeys((1.0, float(batch), float(batch * _values(gradient.case)), 1 / batch))


def _values(case: schema.Case) -> int:
    """What a sample adds to a mean."""
    match case.model:
        case schema.Transformer():
            return case.data.length
        case schema.ResidualBlock():
            return case.model.out_channels * case.data.size**2
        case schema.LinearStack():
            return case.model.width
    return getattr(case.model, "outputs", 1) if case.loss.kind == "mse" else 1


def _weights(gradient: Gradient, settings: Settings) -> Iterator[float]:
    """What makes a replica's share of its samples an equal share, by the sizes of the parts of a batch."""
    yield 1.0
    sizes = [len(part) for part in shards.split(range(gradient.case.data.batch), gradient.case)]
    if gradient.name.endswith(keys.LOCAL):
        factors = [sum(sizes) / (len(sizes) * size) for size in sizes if size]
        yield from dict.fromkeys([*factors, *(1 / factor for factor in factors)])


def _scales(gradient: Gradient, settings: Settings) -> Iterator[float]:
    yield 1.0
    if not gradient.name.endswith(keys.LOCAL) and (gradient.case.clip_norm or gradient.case.replicas > 1):
        return  # a reduction and clipping scale too: see parity/diagnose/reductions.py
    made = _predict(gradient, **{**settings, "scale": 1.0})["gradient"]
    factor = solve.scale(made, gradient.seen["gradient"].value)
    if factor is not None:
        yield factor


FORMULA: Final[Formula[Gradient]] = Formula(
    _predict,
    (
        Trait("whole", "gradient.stopped", _stops(staged=False)),
        Trait("sent", "send_recv.gradient", _stops(staged=True)),
        Trait("kept", "gradient.kept", _kept),
        Trait("row", "embedding.padding_idx", _rows),
        Trait("transposed", "gradient.transposed", _square),
        Trait("sign", "gradient.sign", choices(1.0, -1.0)),
        Trait("summed_passes", "accumulation.normalisation", times(lambda case: case.accumulate)),
        Trait("scaled_passes", "accumulation.normalisation", times(lambda case: 1 / case.accumulate)),
        *FACTORS,
        Trait("weighed", "batch.uneven", _weights),
        Trait("loss_size", "loss.sum", _loss_sizes),
        Trait("scale", "gradient.scale", _scales),
    ),
)
