"""How each strategy spreads a training over devices: what weights, work and memory of a step each device has.

Parameters, gradients and optimizer slots are float32, also under mixed precision. What a framework keeps beside the
tensors (its code, its allocator's reserve) is not here: for a device of this machine it is measured.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from parity.advise.model import FLOAT, Cost, Model
from parity.advise.traffic import padded, pieces, stage_numbers
from parity.config import strategies
from parity.config.base import BaseStrategy
from parity.config.devices import split
from parity.config.schema import SGD, Case, Optimizer


class Load(NamedTuple):
    """What one device has of a training."""

    weights: float  # the bytes of the parameters that it keeps
    # The bytes that the forward passes of a whole step keep for the backward passes, with inputs, target and outputs.
    kept: float
    flops: float  # operations of a step's forward passes

    def __add__(self, other: Iterable[Any]) -> "Load":
        return Load(*map(operator.add, self, other))

    def times(self, factor: float) -> "Load":
        """Return a part of it, or several times of it."""
        return Load(*(factor * number for number in self))


NOTHING = Load(0, 0, 0)


def spread(case: Case, model: Model, side: str) -> list[Load]:
    """Return the load of each device under the case's strategy and the given framework."""
    return SPREADS[type(case.distribution)](case, model, side)


def whole(model: Model, samples: int) -> Load:
    """Return the load of a device that has the whole model, and so many samples of a step."""
    return Load(model.size(), samples * (model.cost.kept + model.data), samples * model.cost.flops)


def _replicated(case: Case, model: Model, side: str) -> list[Load]:
    return [whole(model, len(part)) for part in split(range(case.data.batch), case)]


def _staged(case: Case, model: Model, side: str) -> list[Load]:
    """Cut the model into stages; the data are on the devices of the first and the last block."""
    places, inputs = stage_numbers(case, model), sum(tensor.bytes for tensor in model.inputs)
    all_loads = []
    for part in split(range(case.data.batch), case):
        loads, samples = [NOTHING] * (case.distribution.used_devices // case.replicas), len(part)
        for block, device in zip(model.blocks, places, strict=True):
            loads[device] += _part(model.size(block.weights), block.cost, samples)
        loads[places[0]] += Load(0, samples * inputs, 0)
        loads[places[-1]] += Load(0, samples * (model.data - inputs), 0)
        all_loads += loads
    return all_loads


def _branch_parallel(case: Case, model: Model, side: str) -> list[Load]:
    loads = [whole(model, case.data.batch)] + [NOTHING] * (case.devices - 1)
    for branch in model.branches:
        part = _part(branch.weights, branch.cost, case.data.batch)
        loads[0] += part.times(-1)
        loads[branch.number % case.devices] += part
    return loads


def _tensor_parallel(case: Case, model: Model, side: str) -> list[Load]:
    """Divide what works on the hidden features; the rest each of PyTorch's ranks has, and Keras's device 0."""
    split = [(pair.hidden, _part(pair.weights, pair.cost, case.data.batch)) for pair in model.pairs]
    rest = sum((part.times(-1) for _, part in split), whole(model, case.data.batch))
    loads = []
    for device in range(case.devices):
        load = rest if side == "torch" or not device else NOTHING
        for hidden, part in split:
            sizes = dict(enumerate(pieces(hidden, case.devices)))
            load += part.times(sizes.get(device, 0) / hidden)
        loads.append(load)
    return loads


def _fsdp(case: Case, model: Model, side: str) -> list[Load]:
    shard = FLOAT * sum(padded(shape, case.devices) for shape in model.weights.values())
    return [load._replace(weights=shard) for load in _replicated(case, model, side)]


def _part(weights: int, cost: Cost, samples: int) -> Load:
    return Load(weights, samples * cost.kept, samples * cost.flops)


SPREADS: dict[type[BaseStrategy], Callable[[Case, Model, str], list[Load]]] = {
    **dict.fromkeys((strategies.Single, strategies.DataParallel, strategies.DDP), _replicated),
    **dict.fromkeys((strategies.RoundRobin, strategies.SendRecv, strategies.Pipeline, strategies.Hybrid), _staged),
    strategies.AllReduce: lambda case, model, side: [whole(model, case.data.batch // case.devices)] * case.devices,
    strategies.BranchParallel: _branch_parallel,
    strategies.TensorParallel: _tensor_parallel,
    strategies.FSDP: _fsdp,
}


class Memory(NamedTuple):
    """The bytes of one device."""

    parameters: float
    gradients: float
    optimizer: float
    buffers: float
    activations: float
    buckets: float  # what communication needs beside the tensors that it moves
    stash: float  # what the forward passes of further micro-batches keep, while one of them is computed

    @property
    def total(self) -> float:
        return sum(self)


def memory(case: Case, model: Model, side: str) -> list[Memory]:
    """Return the memory of each device under the case's strategy and the given framework."""
    return [_device(case, model, side, number, load) for number, load in enumerate(spread(case, model, side))]


def slots(optimizer: Optimizer) -> int:
    """Return the number of tensors of a parameter's size that the optimizer keeps for each parameter."""
    return int(optimizer.momentum > 0) if isinstance(optimizer, SGD) else 2


def _device(case: Case, model: Model, side: str, number: int, load: Load) -> Memory:
    strategy = case.distribution
    one = load.kept / case.accumulate
    # Keras adds the gradients of a micro-batch to the sum of those before it, so that both exist.
    sums = 2 if side == "keras" and case.accumulate > 1 else 1
    kept = side == "keras" or not strategy.is_gathered or number == 0  # nn.DataParallel's replicas last for a pass
    held = 1.0 if strategy.shards_parameters else load.weights / model.size()
    in_flight = 1  # micro-batches at most
    if isinstance(strategy, strategies.Pipelined):
        # All under GPipe (Huang et al. 2018); as many as stages from it to the last under 1F1B (Narayanan et al. 2019).
        ahead = strategy.stages - number % strategy.stages if strategy.schedule == "1f1b" else case.accumulate
        in_flight = min(ahead, case.accumulate)
    return Memory(
        parameters=load.weights,
        gradients=load.weights * sums,
        optimizer=slots(case.optimizer) * load.weights * kept,
        buffers=FLOAT * model.buffers * held,
        activations=one,
        buckets=_buckets(case, model, side, load),
        stash=one * (in_flight - 1),
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
