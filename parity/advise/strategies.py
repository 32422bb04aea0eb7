"""How each strategy spreads a training over devices: what each device has, and what moves between them in a step.

The formulas follow from what the strategies do, which docs/strategies.md tells for both frameworks. Bytes are those
that `parity.trace.layout` counts: each copy between two devices with its size, and for each collective operation what
one rank or replica gives into it. How many bytes a link carries for a collective depends on its algorithm; that is
`parity.advise.costs`'s subject. Scalars, ids of samples and copies from the host are not counted.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from parity.advise.model import FLOAT, Branch, Cost, LinearPair, Model
from parity.config import strategies
from parity.config.base import BaseStrategy
from parity.config.devices import split
from parity.config.schema import Case
from parity.core.groups import by_key
from parity.trace.layout import Transfer, total

Copies = Iterator[Transfer]


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


class Spread(NamedTuple):
    """A training under a strategy: the load of each device, and a step's copies and collectives as in a layout."""

    loads: list[Load]
    transfers: Sequence[Transfer] = ()
    collectives: Mapping[str, int] = {}

    @property
    def by_kind(self) -> dict[str, int]:
        """Return the bytes of all copies, by what they are, and of what one rank gives into each collective."""
        copies = ((transfer.what, transfer.bytes) for transfer in self.transfers)
        return {what: sum(sizes) for what, sizes in by_key((*self.collectives.items(), *copies)).items()}


def spread(case: Case, model: Model, side: str) -> Spread:
    """Return how the case's training is spread over devices under the given framework."""
    loads, transfers, collectives = STRATEGIES[type(case.distribution)](case, model, side)
    if case.distribution.used_devices == 1:
        return Spread(loads, [])
    copies = [transfer for transfer in transfers if transfer.bytes and transfer.source != transfer.target]
    return Spread(loads, total(copies), {name: size for name, size in sorted(collectives.items()) if size})


def pieces(rows: int, parts: int) -> list[int]:
    """Return the sizes of the pieces that torch.chunk cuts `rows` into; there may be fewer than `parts`."""
    size = math.ceil(rows / parts)
    return [min(size, rows - start) for start in range(0, rows, size)]


def whole(model: Model, samples: int) -> Load:
    """Return the load of a device that has the whole model, and so many samples of a step."""
    return Load(model.size(), samples * (model.cost.kept + model.data), samples * model.cost.flops)


def _replicas(case: Case, model: Model) -> list[Load]:
    return [whole(model, len(part)) for part in split(range(case.data.batch), case)]


def _data_parallel(case: Case, model: Model, side: str) -> Spread:
    """Deal out inputs, weights and buffers, and collect outputs and gradients, all by device 0.

    See torch/nn/parallel/data_parallel.py; MirroredStrategy only reduces the gradients.
    """
    loads, parts = _replicas(case, model), pieces(case.data.batch, case.devices)
    if side == "keras":
        return Spread(loads, collectives={"all_reduce": model.size()})
    return Spread(loads, [copy for device, samples in enumerate(parts) for copy in _dealt(model, device, samples)])


def _dealt(model: Model, device: int, samples: int) -> Copies:
    output = samples * model.output.bytes
    yield _copy("input", 0, device, samples * sum(tensor.bytes for tensor in model.inputs))
    yield _copy("parameter", 0, device, model.size() + FLOAT * model.buffers)
    yield _copy("output", device, 0, output)
    yield _copy("gradient", 0, device, output)
    yield _copy("gradient", device, 0, model.size())


def _ddp(case: Case, model: Model, side: str) -> Spread:
    """Reduce each gradient once, and send the buffers at the first forward pass after that.

    See torch/nn/parallel/distributed.py (Li et al. 2020, "PyTorch Distributed", section 3.2).
    """
    buffers = FLOAT * model.buffers if case.distribution.broadcasts_buffers else 0
    return Spread(_replicas(case, model), collectives={"all_reduce": model.size(), "broadcast": buffers})


def _all_reduce(case: Case, model: Model, side: str) -> Spread:
    loads = [whole(model, case.data.batch // case.devices)] * case.devices
    return Spread(loads, collectives={"all_reduce": model.size()})


def _staged(case: Case, model: Model, side: str) -> Spread:
    """Cut the model into stages; the data are on the devices of the first and the last block.

    The activations of all micro-batches are sent from stage to stage, and back the gradients of those that have one.
    Where several replicas are cut into stages, each stage's gradients are reduced.
    """
    numbers, inputs = _stage_numbers(case, model), sum(tensor.bytes for tensor in model.inputs)
    devices = case.distribution.used_devices // case.replicas
    loads: list[Load] = []
    copies: list[Transfer] = []
    for replica, part in enumerate(split(range(case.data.batch), case)):
        own, samples = [NOTHING] * devices, len(part)
        for block, stage in zip(model.blocks, numbers, strict=True):
            own[stage] += _part(model.size(block.weights), block.cost, samples)
        own[numbers[0]] += Load(0, samples * inputs, 0)
        own[numbers[-1]] += Load(0, samples * (model.data - inputs), 0)
        loads += own
        places = [replica * case.distribution.stages + stage for stage in numbers]
        for block, here, there in zip(model.blocks, places, places[1:], strict=False):
            copies.append(_copy("activation", here, there, samples * sum(tensor.bytes for tensor in block.passed)))
            back = sum(tensor.bytes for tensor in block.passed if tensor.differentiable)
            copies.append(_copy("gradient", there, here, samples * back))
    return Spread(loads, copies, {"all_reduce": model.size() * (case.replicas > 1)})


def _stage_numbers(case: Case, model: Model) -> list[int]:
    """Return the stage of each block: the device that has it, of those of a replica."""
    if isinstance(case.distribution, strategies.RoundRobin):
        return [i % case.devices for i in range(len(model.blocks))]
    return [stage for stage, size in enumerate(case.distribution.cut(len(model.blocks))) for _ in range(size)]


def _branch_parallel(case: Case, model: Model, side: str) -> Spread:
    """Copy the input and the output of each branch, and their gradients.

    TensorFlow copies a tensor to a device once, however many layers take it there
    (tensorflow/core/graph/graph_partition.cc).
    """
    loads = [whole(model, case.data.batch)] + [NOTHING] * (case.devices - 1)
    copies, sent = [], set()
    for branch in model.branches:
        device, part = branch.number % case.devices, _part(branch.weights, branch.cost, case.data.batch)
        loads[0] += part.times(-1)
        loads[device] += part
        there, *rest = _there_and_back(branch, device, case.data.batch)
        copies += rest if side == "keras" and (branch.source, device) in sent else [there, *rest]
        sent.add((branch.source, device))
    return Spread(loads, copies)


def _there_and_back(part: Branch | LinearPair, device: int, samples: int) -> Copies:
    """Yield the copies of what a part takes and returns, and of their gradients, between device 0 and its own."""
    yield _copy("activation", 0, device, samples * part.taken.bytes)
    yield _copy("activation", device, 0, samples * part.returned.bytes)
    if part.returned.differentiable:
        yield _copy("gradient", 0, device, samples * part.returned.bytes)
    if part.taken.differentiable:
        yield _copy("gradient", device, 0, samples * part.taken.bytes)


def _tensor_parallel(case: Case, model: Model, side: str) -> Spread:
    """Divide what works on the hidden features; the rest each of PyTorch's ranks has, and Keras's device 0.

    Partial outputs are added up, and partial gradients of the inputs (Shoeybi et al. 2019, section 3).
    """
    batch = case.data.batch
    shards = [(pair, _part(pair.weights, pair.cost, batch), pieces(pair.hidden, case.devices)) for pair in model.pairs]
    rest = sum((part.times(-1) for _, part, _ in shards), whole(model, batch))
    loads = [rest if side == "torch" or not device else NOTHING for device in range(case.devices)]
    copies: list[Transfer] = []
    for pair, part, sizes in shards:
        for device, size in enumerate(sizes):
            loads[device] += part.times(size / pair.hidden)
            copies += _there_and_back(pair, device, batch)
    sums = [pair.returned.bytes + pair.taken.bytes * pair.taken.differentiable for pair in model.pairs]
    return Spread(loads, collectives={"all_reduce": batch * sum(sums)}) if side == "torch" else Spread(loads, copies)


def _fsdp(case: Case, model: Model, side: str) -> Spread:
    """Gather a block's shards for each forward and each backward pass, and scatter its gradients once.

    Shards are cut along the first axis and padded to equal size (torch/distributed/fsdp/_fully_shard/,
    _fsdp_param.py; Rajbhandari et al. 2020). To clip, the norm of each parameter's gradient is summed.
    """
    rows = ((math.ceil(shape[0] / case.devices), *shape[1:]) for shape in model.weights.values())
    shard = FLOAT * sum(map(math.prod, rows))
    norms = FLOAT * len(model.weights) if case.clip_norm else 0
    moved = {"all_gather": 2 * case.accumulate * shard, "reduce_scatter": case.devices * shard, "all_reduce": norms}
    return Spread([load._replace(weights=shard) for load in _replicas(case, model)], collectives=moved)


def _part(weights: int, cost: Cost, samples: int) -> Load:
    return Load(weights, samples * cost.kept, samples * cost.flops)


def _copy(what: str, source: int, target: int, size: int) -> Transfer:
    return Transfer(what=what, source=source, target=target, bytes=size)  # type: ignore[arg-type]


STRATEGIES: dict[type[BaseStrategy], Callable[[Case, Model, str], Spread]] = {
    strategies.Single: lambda case, model, side: Spread(_replicas(case, model)),
    strategies.DataParallel: _data_parallel,
    strategies.DDP: _ddp,
    strategies.AllReduce: _all_reduce,
    **dict.fromkeys((strategies.RoundRobin, strategies.SendRecv, strategies.Pipeline, strategies.Hybrid), _staged),
    strategies.BranchParallel: _branch_parallel,
    strategies.TensorParallel: _tensor_parallel,
    strategies.FSDP: _fsdp,
}
