"""What a training costs: how long a step takes, from its parts, and the memory of each device.

Computation is that of measured steps of `single`: what a step costs once, its update above all; what each forward and
backward pass costs, however few its samples; and what grows with the operations. A link costs a latency for each
message and its bytes over its bandwidth. Collectives are those of a ring: n devices make 2 (n - 1) hops for an
all-reduce, and n - 1 for a gather or a scatter (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms").

Parameters, gradients and optimizer slots are float32, also under mixed precision. What a framework keeps beside the
tensors (its code, its allocator's reserve) is not here: for a device of this machine it is measured.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from parity.advise.choices import GIGA, MICRO, Link
from parity.advise.model import FLOAT, Model
from parity.advise.strategies import Load, spread
from parity.config.schema import Case
from parity.config.strategies import Pipelined, RoundRobin
from parity.runtime.resources import slots

BUCKET = 25 * 2**20  # bytes of DistributedDataParallel's buckets, its default
BACKWARD = 2 / 3  # of the computation is the backward pass, beside which gradients can be reduced


class Compute(NamedTuple):
    """The seconds of what a step costs once, of a pass without samples, and of one operation of a forward pass."""

    update: float  # that of all parameters, and whatever else is done once
    fixed: float  # of a forward and a backward pass of the whole model
    flop: float


class Duration(NamedTuple):
    """The seconds of a step, which are the sum of these."""

    compute: float  # what the devices would need if all had equal work all the time
    imbalance: float  # what the busiest has more
    bubbles: float  # what it waits for others
    communication: float  # copies and collectives that no computation hides


def duration(case: Case, model: Model, side: str, compute: Compute, link: Link, slots: int = 0) -> Duration:
    """Return the predicted time of a step of the case under a framework.

    `slots`: how many devices can compute at once, where they share a machine's processors; 0 if each has its own.
    """
    busy = [_busy(load, case, model, side, compute) for load in spread(case, model, side).loads]
    strategy = case.distribution
    most = max(busy)
    mean = min(sum(busy) / len(busy), most)  # the mean of equal numbers may round to more than each of them
    if isinstance(strategy, Pipelined):
        # Huang et al. 2018, section 2.3: stages wait while the pipeline fills and drains.
        bubbles = most * (strategy.stages - 1) / case.accumulate
    elif strategy.is_staged or isinstance(strategy, RoundRobin):  # one device at a time
        bubbles = max(sum(busy) - most, 0.0)
    else:
        bubbles = 0.0
    if slots:
        # What waits leaves its processor to others, and no more devices compute than there are processors.
        bubbles += max(sum(busy) / slots - most - bubbles, 0.0)
    moved = _moved(case, model, side, link)
    if strategy.averages_gradients and not slots and not case.accumulate > 1:
        moved = max(moved - BACKWARD * mean, 0.0)
    return Duration(mean, most - mean, bubbles, moved)


def work(case: Case, model: Model, side: str, compute: Compute) -> list[float]:
    """Return the seconds that each block of a model that is cut into stages adds to a step of its device."""
    samples = case.data.batch / case.replicas
    loads = [Load(model.size(block.weights), 0, samples * block.cost.flops) for block in model.blocks]
    return [_busy(load, case, model, side, compute) for load in loads]


def _busy(load: Load, case: Case, model: Model, side: str, compute: Compute) -> float:
    """Return the seconds that a device computes in a step.

    A device that has some of the blocks, or some of the parameters, has its part of what passes and updates cost. But
    in PyTorch a program of its own calls each operation, and one program calls those of all its devices in turn: unless
    the model is cut into consecutive parts, nobody is spared any.
    """
    strategy = case.distribution
    calls_all = side == "torch" and not strategy.is_staged and not isinstance(strategy, RoundRobin)
    update = 1.0 if calls_all else load.weights / model.size()
    passes = 1.0 if calls_all else min(load.flops * case.replicas / (model.cost.flops * case.data.batch), 1.0)
    return compute.update * update + compute.fixed * passes * case.accumulate + compute.flop * load.flops


def _moved(case: Case, model: Model, side: str, link: Link) -> float:
    """Return the seconds of a step's copies and collectives."""
    moved = spread(case, model, side)
    latency, bandwidth = link.latency * MICRO, link.bandwidth * GIGA
    count = case.distribution.used_devices // case.distribution.stages  # devices in a collective
    seconds, once = 0.0, count - 1
    # Of each collective in a ring the hops, and how often the bytes that a device gives pass over its link.
    rings = {
        "all_reduce": (2 * once, 2 * once / count),
        "all_gather": (once, once),  # the bytes are those of a shard
        "reduce_scatter": (once, once / count),
        "broadcast": (once, 1.0),  # passed on in pieces
    }
    for name, size in moved.collectives.items():
        hops, part = rings[name]
        stages = case.distribution.stages  # each of which reduces its own parameters, at the same time
        calls = _calls(case, model, side, name) / stages
        seconds += calls * (link.collective * MICRO + hops * latency) + part * size / stages / bandwidth
    passes = 1 if case.distribution.is_gathered else case.accumulate
    routes = [passes * latency + transfer.bytes / bandwidth for transfer in moved.transfers]
    if isinstance(case.distribution, Pipelined):  # whose routes work at the same time
        return seconds + 2 * max(routes, default=0.0)  # activations there and gradients back
    return seconds + sum(routes)


def _calls(case: Case, model: Model, side: str, collective: str) -> float:
    """Return the number of operations of a collective in a step."""
    strategy = case.distribution
    groups = sum(1 for block in model.blocks if block.weights)
    if strategy.shards_parameters:
        return {"all_gather": 2 * groups * case.accumulate, "reduce_scatter": groups}.get(collective, 1)
    if strategy.is_sharded:
        return sum(1 + pair.taken.differentiable for pair in model.pairs) * case.accumulate
    if collective == "all_reduce" and (strategy.reduces_itself and side == "torch"):
        return len(model.weights)
    return math.ceil(model.size() / BUCKET)


def balanced(costs: Sequence[float], stages: int) -> list[int]:
    """Return how many blocks each stage gets, so that the stage with the most work has as little as possible.

    `costs`: the work of each block, in any unit; there are at least as many as stages, and each stage gets one or more.
    Solved from the first block on: the best cut of the first n blocks into k stages follows from those into k - 1.
    """
    sums = [0.0, *accumulate(costs)]
    # By the number of blocks that are cut: the most work of a stage, and the sizes of the stages.
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for _ in range(stages):
        best = {
            end: min(
                (max(most, sums[end] - sums[start]), [*sizes, end - start])
                for start, (most, sizes) in best.items()
                if start < end
            )
            for end in range(min(best) + 1, len(sums))
        }
    return best[len(costs)][1]


class Memory(NamedTuple):
    """The bytes of one device, which are the sum of these."""

    parameters: float
    gradients: float
    optimizer: float
    buffers: float
    activations: float
    buckets: float  # what communication needs beside the tensors that it moves
    stash: float  # what the forward passes of further micro-batches keep, while one of them is computed


def memory(case: Case, model: Model, side: str) -> list[Memory]:
    """Return the memory of each device under the case's strategy and the given framework."""
    return [_device(case, model, side, number, load) for number, load in enumerate(spread(case, model, side).loads)]


def _device(case: Case, model: Model, side: str, number: int, load: Load) -> Memory:
    strategy = case.distribution
    micro_batch = load.kept / case.accumulate
    # Keras adds the gradients of a micro-batch to the sum of those before it, so that both exist.
    sums = 2 if side == "keras" and case.accumulate > 1 else 1
    kept = side == "keras" or not strategy.is_gathered or number == 0  # nn.DataParallel's replicas last for a pass
    held = 1.0 if strategy.shards_parameters else load.weights / model.size()
    in_flight = 1  # micro-batches at most
    if isinstance(strategy, Pipelined):
        # All under GPipe (Huang et al. 2018); as many as stages from it to the last under 1F1B (Narayanan et al. 2019).
        ahead = strategy.stages - number % strategy.stages if strategy.schedule == "1f1b" else case.accumulate
        in_flight = min(ahead, case.accumulate)
    return Memory(
        parameters=load.weights,
        gradients=load.weights * sums,
        optimizer=slots(case) * load.weights * kept,
        buffers=FLOAT * model.buffers * held,
        activations=micro_batch,
        buckets=_buckets(case, model, side, load),
        stash=micro_batch * (in_flight - 1),
    )


def _buckets(case: Case, model: Model, side: str, load: Load) -> float:
    """Return what communication needs beside the tensors that it moves.

    A reduction that the framework makes packs the gradients into buckets, which are as large as they are (torch's
    DistributedDataParallel without gradient_as_bucket_view; tf.distribute's cross_device_ops.py); one that the program
    calls in PyTorch works in place. For fully_shard see `_gathered`.
    """
    strategy = case.distribution
    if strategy.shards_parameters:
        return _gathered(case, model)
    packs = side == "keras" or not strategy.reduces_itself
    return load.weights if packs and strategy.replicas > 1 else 0.0


def _gathered(case: Case, model: Model) -> float:
    """Return the bytes of the blocks that FSDP has gathered at a time, and of the gradients that are not yet scattered.

    While a block is computed the next one is gathered, and a block's gradients exist whole until they are scattered
    (docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html). With several micro-batches the gradients of the
    whole model stay until the last one.
    """
    sizes = [model.size(block.weights) for block in model.blocks]
    gathered = max(first + second for first, second in zip(sizes, [*sizes[1:], 0], strict=True))
    return gathered + (model.size() if case.accumulate > 1 else max(sizes))
