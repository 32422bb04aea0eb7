"""Causes in one gradient, found by comparing it with the other side's: stopped, scaled, negated."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from parity.config import devices, schema
from parity.config.pair import UNNAMED
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.entries import entry
from parity.diagnose.formula import Formula, Settings, Trait, choices, choices_if, require
from parity.diagnose.reductions import FACTORS, observe, times
from parity.diagnose.topic import Compared, Question, Side, Sides, compare_with_reference, most_informative
from parity.results import Cause
from parity.trace import keys
from parity.trace.keys import MODEL, plain
from parity.verdict.traces import Unequal

# How a gradient, or one row of it, compares with the other side's. Where only the other side's is zero, its correct
# value is unknown, so all that can be said is that it flows.
SAME, STOPPED, FLOWS = "as on the other side", "stopped", "flows"
# Factor of the previous step's gradient in this one, if one side did not set its gradients to zero.
KEPT: Final = {"added to that of the step before": 1.0, "without that of the step before": -1.0}
NOTHING: Final = 1e-9  # a smaller factor is what rounding leaves of a gradient that is zero
FORWARD: Final = ("input", "activation")
FORWARD_PASS: Final = (*FORWARD, "loss")  # kinds of what it makes
MISSING: Final = "gradient.missing"


def questions(sides: Sides) -> Iterator[Question]:
    """Ask about gradients that are compared directly, as backward cannot be recomputed, if the forward pass agrees."""
    differing = sides.of("gradient")
    if not differing or any(precedes(tensor, differing[0]) for tensor in sides.unequal):
        return
    first = [tensor for tensor in differing if tensor.step == differing[0].step]
    local = [tensor for tensor in first if tensor.name.endswith(keys.LOCAL)]
    # reductions.py asks about those of which the gradients before the reduction were recorded.
    alone = [each for each in first if not observe(sides.reference, each.name, each.step or 0, each.replica)]
    for tensor in most_informative(sides, local or alone):
        yield compare_with_reference(sides, tensor, FORMULA)


def missing(sides: Sides) -> Iterator[Cause]:
    """Yield a cause for each gradient of the first step with a difference that exists on one side only."""
    differing = sides.of("gradient")
    cause = "send_recv.gradient" if sides.reference.case.distribution.is_staged else MISSING
    for tensor in differing:
        lacking = [side.lacks(tensor) for side in sides.both]
        if tensor.step != differing[0].step or sum(lacking) != 1:
            continue
        lacks, has = sides.both if lacking[0] else sides.both[::-1]
        if not _vanishes(lacks, has, tensor):
            evidence = "only one side's backward pass reaches this parameter"
            yield entry(cause, tensor.name, (lacks.name, has.name), ("no gradient", "has a gradient"), evidence)


def without_followers(
    causes: Sequence[Cause], unequal: Collection[Unequal], accepted: Collection[Cause]
) -> list[Cause]:
    """Return causes without those that follow: missing gradients where the forward pass differs for a known reason.

    A pair's gradient of zeros counts as missing, and what a layer is given decides whether its gradient is zero: a mask
    that leaves one key to see, a result that is used no more. Whether such a gradient has a fault of its own shows once
    the forward pass is mended, or the cause of its difference accepted; so it is within a module that differs for an
    unknown reason. And where one side leaves a dropout out, the masks that come after it have other numbers.
    """
    forward = [plain(tensor.name) for tensor in unequal if tensor.step == 0 and tensor.kind in FORWARD]
    known = {(cause.id, plain(cause.where)) for cause in causes if cause.id not in (*UNNAMED, MISSING)}
    known -= {(cause.id, plain(cause.where)) for cause in accepted}
    is_known = any(where == MODEL or f"{name}.".startswith(f"{where}.") for _, where in known for name in forward)
    is_left_out = any(cause.id == "dropout.rate" and None in (cause.torch, cause.keras) for cause in causes)
    followers = {MISSING: is_known, "dropout.order": is_left_out}
    open_ = [plain(cause.where) for cause in causes if cause.id in UNNAMED and plain(cause.where) in forward]
    within = {cause.where for cause in causes if cause.where.startswith(tuple(f"{where}." for where in open_))}
    return [
        cause for cause in causes if not (followers.get(cause.id) or (cause.id == MISSING and cause.where in within))
    ]


def _vanishes(lacking: Side, having: Side, gradient: Unequal) -> bool:
    """Return whether what passes near a parameter is zero on the lacking side alone, so that its gradient is zero too.

    Near are the modules beside the one that has it: an attention whose mask hides everything gives its projections no
    gradient, though backward reaches them.
    """
    scope = gradient.name.rpartition(".")[0].rpartition(".")[0]
    mine, theirs = (each.file(gradient.step, gradient.replica).recorded for each in (lacking, having))
    prefixes = tuple(keys.key(kind, f"{scope}." if scope else "") for kind in FORWARD)
    near = (key for key in mine.keys() & theirs.keys() if key.startswith(prefixes))
    return any(_is_zero(mine[key]) and not _is_zero(theirs[key]) for key in near)


def _is_zero(array: Array) -> bool:
    return array.dtype.kind == "f" and array.size > 0 and not np.any(array)


def precedes(tensor: Unequal, gradient: Unequal) -> bool:
    """Return whether a tensor comes before the backward pass that made a gradient."""
    step = -1 if tensor.step is None else tensor.step
    is_before = tensor.kind in ("sample", *FORWARD_PASS) or tensor.turn < gradient.turn
    return step < (gradient.step or 0) or (step == gradient.step and is_before)


def _predict(
    gradient: Compared, whole: str, sent: str, kept: str, row: str, transposed: bool, **factors: float
) -> dict[str, Array]:
    seen = gradient.seen["gradient"].value
    if {whole, sent} != {SAME}:
        return {"gradient": np.zeros_like(seen) if STOPPED in (whole, sent) else seen}
    predicted = (gradient.reference.T if transposed else gradient.reference) * math.prod(factors.values())
    if kept != SAME and gradient.before is not None:
        require(gradient.before.shape == predicted.shape, "gradients of one shape in both steps")
        predicted = predicted + KEPT[kept] * gradient.before
    if row != SAME:
        number, state = row.rsplit(" ", 1)
        predicted[int(number)] = 0.0 if state == STOPPED else seen[int(number)]
    return {"gradient": predicted}


def _is_square(gradient: Compared) -> bool:
    return gradient.reference.ndim == 2 and gradient.reference.shape[0] == gradient.reference.shape[1]


def _stopped(staged: bool, gradient: Compared, settings: Settings) -> Iterator[str]:
    """Yield whether a gradient is zero on one side alone; `staged`: of pipeline stages, between which it was lost."""
    yield SAME
    flows_here, flows_there = gradient.seen["gradient"].value.any(), gradient.reference.any()
    if flows_here != flows_there and staged == gradient.case.distribution.is_staged:
        yield FLOWS if flows_here else STOPPED


def _rows(gradient: Compared, settings: Settings) -> Iterator[str]:
    """Yield the only row of an embedding that has a gradient on one side and none on the other."""
    yield SAME
    seen, reference = gradient.seen["gradient"].value, gradient.reference
    if "embedding" in gradient.name and seen.ndim == 2 and seen.shape == reference.shape:
        has_gradient = np.any(seen, axis=1)
        differing = np.flatnonzero(has_gradient != np.any(reference, axis=1))
        if len(differing) == 1:
            yield f"{differing[0]} {FLOWS if has_gradient[differing[0]] else STOPPED}"


def _loss_sizes(gradient: Compared, settings: Settings) -> Iterable[float]:
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
    outputs = getattr(case.model, "outputs", 1)  # of a pair, the names of its outputs
    return outputs if case.loss.kind == "mse" and isinstance(outputs, int) else 1


def _equal_replica_weights(gradient: Compared, settings: Settings) -> Iterator[float]:
    """Yield factors of gradients whose replicas, not samples, weigh equally; 1 unless parts of the batch are uneven."""
    yield 1.0
    sizes = [len(part) for part in devices.split(range(gradient.case.data.batch), gradient.case)]
    if gradient.name.endswith(keys.LOCAL):
        factors = [sum(sizes) / (len(sizes) * size) for size in sizes if size]
        yield from dict.fromkeys([*factors, *(1 / factor for factor in factors)])


def _scales(gradient: Compared, settings: Settings) -> Iterator[float]:
    """Yield the factor between the two gradients, where nothing else can have scaled them."""
    yield 1.0
    if not gradient.name.endswith(keys.LOCAL) and (gradient.case.clip_norm or gradient.case.replicas > 1):
        return  # a reduction or clipping may have scaled it: reductions.py asks about those
    unscaled = _predict(gradient, **{**settings, "scale": 1.0})["gradient"]
    factors = solve.scale(unscaled, gradient.seen["gradient"].value)
    yield from (factor for factor in factors if abs(factor) > NOTHING)


FORMULA: Final[Formula[Compared]] = Formula(
    _predict,
    (
        Trait("whole", "gradient.stopped", partial(_stopped, False)),
        Trait("sent", "send_recv.gradient", partial(_stopped, True)),
        Trait("kept", "gradient.kept", choices_if(lambda gradient: gradient.before is not None, SAME, *KEPT)),
        Trait("row", "embedding.padding_idx", _rows),
        Trait("transposed", "gradient.transposed", choices_if(_is_square, False, True)),
        Trait("sign", "gradient.sign", choices(1.0, -1.0)),
        Trait("summed_passes", "accumulation.normalisation", times(lambda case: case.accumulate)),
        Trait("scaled_passes", "accumulation.normalisation", times(lambda case: 1 / case.accumulate)),
        *FACTORS,
        Trait("weighed", "batch.uneven", _equal_replica_weights),
        Trait("loss_size", "loss.sum", _loss_sizes),
        Trait("scale", "gradient.scale", _scales),
    ),
)
