"""What each strategy moves between devices in one training step, as the layouts record it.

The formulas follow from what the strategies do, which docs/strategies.md tells for both frameworks. Bytes are those
that `parity.trace.layout` counts: each copy between two devices with its size, and for each collective operation what
one rank or replica gives into it. How many bytes a link carries for a collective depends on its algorithm; that is
`parity.advise.duration`'s subject. Scalars, ids of samples and copies from the host are not counted.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from parity.advise.model import FLOAT, Branch, LinearPair, Model
from parity.config import strategies
from parity.config.base import BaseStrategy
from parity.config.devices import split
from parity.config.schema import Case
from parity.core.groups import by_key
from parity.trace.layout import Transfer, total

Copies = Iterator[Transfer]


class Traffic(NamedTuple):
    """The copies and collectives of one training step, in the form of a layout."""

    transfers: list[Transfer]
    collectives: dict[str, int]

    @property
    def by_kind(self) -> dict[str, int]:
        """Return the bytes of all copies, by what they are, and of what one rank gives into each collective."""
        copies = ((transfer.what, transfer.bytes) for transfer in self.transfers)
        return {what: sum(sizes) for what, sizes in by_key((*self.collectives.items(), *copies)).items()}


def traffic(case: Case, model: Model, side: str) -> Traffic:
    """Return what a step of the case moves between devices under the given framework."""
    if case.distribution.used_devices == 1:
        return Traffic([], {})
    moved = FORMULAS[type(case.distribution)](case, model, side)
    copies = [transfer for transfer in moved.transfers if transfer.bytes and transfer.source != transfer.target]
    return Traffic(total(copies), {name: size for name, size in sorted(moved.collectives.items()) if size})


def stage_numbers(case: Case, model: Model) -> list[int]:
    """Return the stage of each block: the device that has it, of those of a replica."""
    if isinstance(case.distribution, strategies.RoundRobin):
        return [i % case.devices for i in range(len(model.blocks))]
    return [stage for stage, size in enumerate(case.distribution.cut(len(model.blocks))) for _ in range(size)]


def pieces(rows: int, parts: int) -> list[int]:
    """Return the sizes of the pieces that torch.chunk cuts `rows` into; there may be fewer than `parts`."""
    size = math.ceil(rows / parts)
    return [min(size, rows - start) for start in range(0, rows, size)]


def _data_parallel(case: Case, model: Model, side: str) -> Traffic:
    """Deal out inputs, weights and buffers, and collect outputs and gradients, all by device 0.

    See torch/nn/parallel/data_parallel.py; MirroredStrategy only reduces the gradients.
    """
    if side == "keras":
        return Traffic([], {"all_reduce": model.size()})
    parts = pieces(case.data.batch, case.devices)
    return Traffic([copy for device, samples in enumerate(parts) for copy in _dealt(model, device, samples)], {})


def _dealt(model: Model, device: int, samples: int) -> Copies:
    output = samples * model.output.bytes
    yield _copy("input", 0, device, samples * sum(tensor.bytes for tensor in model.inputs))
    yield _copy("parameter", 0, device, model.size() + FLOAT * model.buffers)
    yield _copy("output", device, 0, output)
    yield _copy("gradient", 0, device, output)
    yield _copy("gradient", device, 0, model.size())


def _reduced(case: Case, model: Model, side: str) -> Traffic:
    """Reduce each gradient once, and under DDP send the buffers at the first forward pass after that.

    See torch/nn/parallel/distributed.py (Li et al. 2020, "PyTorch Distributed", section 3.2).
    """
    buffers = FLOAT * model.buffers if case.distribution.broadcasts_buffers else 0
    return Traffic([], {"all_reduce": model.size(), "broadcast": buffers})


def _staged(case: Case, model: Model, side: str) -> Traffic:
    """Send the activations of all micro-batches from stage to stage, and back the gradients of those that have one.

    Where several replicas are cut into stages, each stage's gradients are reduced.
    """
    numbers = stage_numbers(case, model)
    copies: list[Transfer] = []
    for replica, part in enumerate(split(range(case.data.batch), case)):
        places = [replica * case.distribution.stages + stage for stage in numbers]
        for block, here, there in zip(model.blocks, places, places[1:], strict=False):
            copies.append(_copy("activation", here, there, len(part) * sum(tensor.bytes for tensor in block.passed)))
            back = sum(tensor.bytes for tensor in block.passed if tensor.differentiable)
            copies.append(_copy("gradient", there, here, len(part) * back))
    return Traffic(copies, {"all_reduce": model.size() * (case.replicas > 1)})


def _branch_parallel(case: Case, model: Model, side: str) -> Traffic:
    """Copy the input and the output of each branch, and their gradients.

    TensorFlow copies a tensor to a device once, however many layers take it there
    (tensorflow/core/graph/graph_partition.cc).
    """
    copies, sent = [], set()
    for branch in model.branches:
        device = branch.number % case.devices
        there, *rest = _there_and_back(branch, device, case.data.batch)
        copies += rest if side == "keras" and (branch.source, device) in sent else [there, *rest]
        sent.add((branch.source, device))
    return Traffic(copies, {})


def _there_and_back(part: Branch | LinearPair, device: int, samples: int) -> Copies:
    """Yield the copies of what a part takes and returns, and of their gradients, between device 0 and its own."""
    yield _copy("activation", 0, device, samples * part.taken.bytes)
    yield _copy("activation", device, 0, samples * part.returned.bytes)
    if part.returned.differentiable:
        yield _copy("gradient", 0, device, samples * part.returned.bytes)
    if part.taken.differentiable:
        yield _copy("gradient", device, 0, samples * part.taken.bytes)


def _tensor_parallel(case: Case, model: Model, side: str) -> Traffic:
    """Add up partial outputs, and partial gradients of the inputs (Shoeybi et al. 2019, section 3)."""
    if side == "torch":
        sums = [pair.returned.bytes + pair.taken.bytes * pair.taken.differentiable for pair in model.pairs]
        return Traffic([], {"all_reduce": case.data.batch * sum(sums)})
    parts = [(pair, device) for pair in model.pairs for device in range(len(pieces(pair.hidden, case.devices)))]
    return Traffic([copy for part in parts for copy in _there_and_back(*part, case.data.batch)], {})


def _fsdp(case: Case, model: Model, side: str) -> Traffic:
    """Gather a block's shards for each forward and each backward pass, and scatter its gradients once.

    Shards are cut along the first axis and padded to equal size (torch/distributed/fsdp/_fully_shard/,
    _fsdp_param.py; Rajbhandari et al. 2020). To clip, the norm of each parameter's gradient is summed.
    """
    shard = FLOAT * sum(padded(shape, case.devices) for shape in model.weights.values())
    norms = FLOAT * len(model.weights) if case.clip_norm else 0
    gathered = 2 * case.accumulate * shard
    return Traffic([], {"all_gather": gathered, "reduce_scatter": case.devices * shard, "all_reduce": norms})


def padded(shape: Sequence[int], parts: int) -> int:
    """Return the elements of the shard that a rank keeps of a parameter, cut along its first axis and padded."""
    return math.ceil(shape[0] / parts) * math.prod(shape[1:])


def _copy(what: str, source: int, target: int, size: int) -> Transfer:
    return Transfer(what=what, source=source, target=target, bytes=size)  # type: ignore[arg-type]


FORMULAS: dict[type[BaseStrategy], Callable[[Case, Model, str], Traffic]] = {
    strategies.Single: lambda case, model, side: Traffic([], {}),
    strategies.DataParallel: _data_parallel,
    **dict.fromkeys((strategies.DDP, strategies.AllReduce), _reduced),
    **dict.fromkeys((strategies.RoundRobin, strategies.SendRecv, strategies.Pipeline, strategies.Hybrid), _staged),
    strategies.BranchParallel: _branch_parallel,
    strategies.TensorParallel: _tensor_parallel,
    strategies.FSDP: _fsdp,
}
