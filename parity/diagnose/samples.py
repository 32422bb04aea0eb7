"""Causes in which samples are drawn: the order of an epoch, how it is divided among replicas and into batches."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from parity.config import devices, schema
from parity.config.devices import Indices
from parity.core.arrays import Array
from parity.data import batches
from parity.diagnose.formula import Formula, Seen, Settings, Trait, choices, choices_if, require, seen
from parity.diagnose.topic import Question, Side, Sides, joined

Step = list[Indices]  # the samples of one step, by replica
IN_A_ROW, IN_TURN, ROW_OF_EPOCH = "contiguous parts of each batch", "round robin", "contiguous parts of each epoch"
PADDINGS: Final = ("first samples repeated", "last samples left out", "none")  # of an epoch
WHOLE_BATCHES: Final = "whole batches only"
KEPT: Final[dict[str, Callable[[Indices], Indices]]] = {
    "all": lambda batch: batch,
    "all but the last sample": lambda batch: batch[:-1],
    "all but the first sample": lambda batch: batch[1:],
    "reversed": lambda batch: batch[::-1],
    WHOLE_BATCHES: lambda batch: batch,
}


class Samples(NamedTuple):
    """The samples that were drawn."""

    size: int  # the number of samples in the data set
    case: schema.Case
    seen: Mapping[str, Seen]  # `indices`: of every step of replica 0, then of every step of replica 1, and so on


def questions(sides: Sides) -> Iterator[Question]:
    """Ask which samples each replica drew."""
    if sides.of("sample"):
        size = batches.Dataset(sides.reference.case).size
        yield Question("sample", "indices", FORMULA, [observe(side, size) for side in sides.both])


def observe(side: Side, size: int) -> Samples | None:
    """Return the samples of every step of every replica, concatenated; None where none were recorded."""
    files = (side.tensors(step, replica) for replica in side.replicas for step in range(side.case.steps))
    drawn = [file["sample/indices"] for file in files if "sample/indices" in file]
    return Samples(size, side.case, {"indices": seen(joined(drawn))}) if drawn else None


def _check(samples: Samples) -> None:
    case = samples.case
    indices = samples.seen["indices"].value
    require(indices.ndim == 1 and np.issubdtype(indices.dtype, np.number), "a row of indices")
    require(not case.distribution.samples_by_rank or case.data.batch >= case.replicas, "a sample for each replica")


def _predict(samples: Samples, replicas: tuple[int, ...], arranged: str, **settings: Any) -> dict[str, Array]:
    """Return the indices that the settings lead to, in the order of `Samples.seen`."""
    plan = _plan(samples, **settings)
    require(max(replicas) < samples.case.replicas, "that replica")
    parts = [step[drawn][: len(step[own])] for own, drawn in enumerate(replicas) for step in plan]
    if arranged == "in another order":
        parts = _rearranged(parts, samples.seen["indices"].value)
    return {"indices": np.concatenate(parts)}


def _plan(
    samples: Samples, order: str, epochs: str, dealt: str, padding: str, first: int, steps: str, kept: str
) -> list[Step]:
    """Return the samples of each step, by replica."""
    case = samples.case
    is_same = epochs == "the same order in each epoch"
    drawn = (_epoch(samples, order, 0 if is_same else epoch) for epoch in itertools.count())
    if case.distribution.samples_by_rank:
        whole = case.data.batch // case.replicas if kept == WHOLE_BATCHES else 0
        dealer = (
            [KEPT[kept](part) for part in step]
            for step in _sampler(case, drawn, dealt, padding)
            if len(step[0]) >= whole
        )
    else:
        dealer = (
            _in_turn(batch, case.replicas) if dealt == IN_TURN else devices.split(batch, case)
            for batch in map(KEPT[kept], _batches(case, drawn))
        )
    plan = list(itertools.islice(dealer, first, first + case.steps))
    return plan[:1] * len(plan) if steps == "the first step's samples again" else plan


def _epoch(samples: Samples, order: str, epoch: int) -> Indices:
    """Return the order of the samples in one epoch."""
    case, size = samples.case, samples.size
    if order == "not shuffled":
        return np.arange(size)
    seed = case.seed + 1 if order == "shuffled with the next seed" else case.seed
    if case.distribution.samples_by_rank:
        return np.asarray(devices.distributed_sampler(size, 1, seed, epoch)[0])
    return batches.order(msgspec.structs.replace(case, seed=seed), size, epoch * size, size)


def _batches(case: schema.Case, epochs: Iterator[Indices]) -> Iterator[Indices]:
    """Yield batches cut from a concatenation of epochs without end: a batch may span two epochs."""
    row = next(epochs)
    while True:
        while len(row) < case.data.batch:
            row = np.concatenate([row, next(epochs)])
        yield row[: case.data.batch]
        row = row[case.data.batch :]


def _sampler(case: schema.Case, epochs: Iterator[Indices], dealt: str, padding: str) -> Iterator[Step]:
    """Yield steps of epochs divided among replicas, then cut into batches, as torch's DistributedSampler does."""
    per_replica = case.data.batch // case.replicas
    for epoch in epochs:
        whole = _padded(epoch, case.replicas, padding)
        if dealt == IN_A_ROW:
            size = per_replica * case.replicas
            yield from (np.array_split(whole[i : i + size], case.replicas) for i in range(0, len(whole), size))
            continue
        own = _in_turn(whole, case.replicas) if dealt == IN_TURN else np.array_split(whole, case.replicas)
        yield from ([part[i : i + per_replica] for part in own] for i in range(0, len(own[0]), per_replica))


def _in_turn(whole: Indices, replicas: int) -> Step:
    return [whole[replica::replicas] for replica in range(replicas)]


def _padded(epoch: Indices, replicas: int, padding: str) -> Indices:
    """Return an epoch made as long as the number of replicas divides, by repeating samples or leaving some out."""
    beyond = len(epoch) % replicas
    if padding == "none" or not beyond:
        return epoch
    return epoch[:-beyond] if padding == "last samples left out" else np.resize(epoch, len(epoch) + replicas - beyond)


def _rearranged(parts: Step, seen: Array) -> Step:
    """Return the planned parts, each in the order that was recorded if that holds the same samples."""
    if sum(map(len, parts)) != len(seen):
        return parts
    pairs = zip(parts, _like(parts, seen), strict=True)
    return [drawn if np.array_equal(np.sort(own), np.sort(drawn)) else own for own, drawn in pairs]


def _like(parts: Step, seen: Array) -> Step:
    """Return what was recorded, cut into parts of the same lengths as the planned ones."""
    return np.split(seen, np.cumsum([len(part) for part in parts])[:-1])


def _dealt(samples: Samples, settings: Settings) -> Iterable[str]:
    if samples.case.distribution.samples_by_rank:
        return IN_TURN, IN_A_ROW, ROW_OF_EPOCH
    return (IN_A_ROW, IN_TURN) if samples.case.replicas > 1 else (IN_A_ROW,)


def _are_uneven(samples: Samples) -> bool:
    return samples.case.distribution.samples_by_rank and samples.size % samples.case.replicas != 0


def _replicas(samples: Samples, settings: Settings) -> Iterator[tuple[int, ...]]:
    """Yield which replica's planned samples each replica drew: its own, or the one that its first batch shows."""
    own = tuple(range(samples.case.replicas))
    yield own
    plan = _plan(samples, **{name: value for name, value in settings.items() if name not in ("replicas", "arranged")})
    seen, parts = samples.seen["indices"].value, [step[replica] for replica in own for step in plan]
    if len(seen) == sum(map(len, parts)):
        first_batches = _like(parts, seen)[:: len(plan)]
        yield tuple(_whose(plan[0], part, replica) for replica, part in enumerate(first_batches))


def _whose(step: Step, part: Indices, own: int) -> int:
    """Return the replica for which a recorded part was planned; the own one if none matches."""
    return next((i for i, planned in enumerate(step) if len(part) and np.array_equal(planned[: len(part)], part)), own)


FORMULA: Final[Formula[Samples]] = Formula(
    _predict,
    (
        Trait("replicas", "shard.rotated", _replicas),
        Trait("epochs", "sampler.epoch", choices("each epoch shuffled anew", "the same order in each epoch")),
        Trait("dealt", "sampler.order", _dealt),
        Trait("padding", "sampler.padding", choices_if(_are_uneven, *PADDINGS)),
        Trait("steps", "sampler.repeated", choices("new samples in each step", "the first step's samples again")),
        Trait("first", "sampler.offset", choices(0, 1)),
        Trait("kept", "sampler.drop_last", choices(*KEPT)),
        Trait("order", "sampler.shuffle", choices("shuffled", "not shuffled", "shuffled with the next seed")),
        Trait("arranged", "sampler.arranged", choices("as planned", "in another order")),
    ),
    _check,
)
