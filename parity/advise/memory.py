"""The memory that each device needs in a training step, by its parts.

Parameters, gradients and optimizer slots are float32, also under mixed precision. What a framework keeps beside the
tensors (its code, its allocator's reserve) is not here: for a device of this machine it is measured.
"""

from typing import NamedTuple

from parity.advise.model import FLOAT, Model
from parity.advise.spread import Load, spread
from parity.config import strategies
from parity.config.schema import SGD, Case, Optimizer


class Memory(NamedTuple):
    """The bytes of one device.

    `buckets`: what communication needs beside the tensors that it moves. `stash`: what the forward passes of further
    micro-batches keep, while one of them is computed.
    """

    parameters: float
    gradients: float
    optimizer: float
    buffers: float
    activations: float
    buckets: float
    stash: float

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return sum(self)


def memory(case: Case, model: Model, side: str) -> list[Memory]:
    """Return the memory of each device under the case's strategy and the given framework."""
    loads = spread(case, model, side)
    return [_device(case, model, side, number, load) for number, load in enumerate(loads)]


def slots(optimizer: Optimizer) -> int:
    """Return the number of tensors of a parameter's size that the optimizer keeps for each parameter."""
    return int(optimizer.momentum > 0) if isinstance(optimizer, SGD) else 2


def in_flight(case: Case, stage: int) -> int:
    """Return how many micro-batches a stage has in flight at most.

    All of them under GPipe (Huang et al. 2018); under 1F1B (Narayanan et al. 2019) as many as there are stages from it
    to the last one.
    """
    strategy = case.distribution
    if not isinstance(strategy, strategies.Pipelined):
        return 1
    limit = strategy.stages - stage if strategy.schedule == "1f1b" else case.accumulate
    return min(limit, case.accumulate)


def _device(case: Case, model: Model, side: str, number: int, load: Load) -> Memory:
    strategy = case.distribution
    one = load.kept / case.accumulate
    # Keras adds the gradients of a micro-batch to the sum of those before it, so that both exist.
    sums = 2 if side == "keras" and case.accumulate > 1 else 1
    kept = side == "keras" or not strategy.is_gathered or number == 0  # nn.DataParallel's replicas last for a pass
    held = 1.0 if strategy.shards_parameters else load.weights / model.size()
    return Memory(
        parameters=load.weights,
        gradients=load.weights * sums,
        optimizer=slots(case.optimizer) * load.weights * kept,
        buffers=FLOAT * model.buffers * held,
        activations=one,
        buckets=_buckets(case, model, side, load),
        stash=one * (in_flight(case, number % strategy.stages) - 1),
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
