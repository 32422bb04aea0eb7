"""The devices of a run, whether they suffice for a case, the same training on one, and which samples a replica has."""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from parity.config import schema
from parity.config.schema import UNUSED, Case
from parity.core.errors import UsageError
from parity.core.wording import count

Kind = Literal["cpu", "gpu"]


class Devices(NamedTuple):
    """A number of logical devices of one kind."""

    kind: Kind
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


def parse(text: str) -> Devices:
    """Parse 'cpu:2' or 'gpu:1'. Raises UsageError."""
    match = re.fullmatch(r"(cpu|gpu):([1-9]\d{0,2})", text)
    if not match:
        raise UsageError(f"--devices={text}: expected auto, cpu:N or gpu:N, e.g. cpu:2")
    return Devices("cpu" if match[1] == "cpu" else "gpu", int(match[2]))


def obstacle(case: Case) -> str:
    """Return why the case cannot run on its number of devices, or "" if it can."""
    strategy, blocks = case.distribution, case.model.blocks
    if strategy.device_obstacle:
        return strategy.device_obstacle
    if strategy.stages > blocks:
        return f"the model has only {count(blocks, 'consecutive block')}, too few for {strategy.stages} stages"
    if strategy.stage_blocks and (len(strategy.stage_blocks), sum(strategy.stage_blocks)) != (strategy.stages, blocks):
        return (
            f"stage_blocks = {list(strategy.stage_blocks)} has {count(sum(strategy.stage_blocks), 'block')} in "
            f"{count(len(strategy.stage_blocks), 'stage')}, but the model has {blocks}, for {strategy.stages} stages"
        )
    sizes = [len(part) for part in split(range(case.data.batch), case)]
    if min(sizes) < case.accumulate:
        return (
            f"a batch of {count(case.data.batch, 'sample')} leaves one of {case.replicas} replicas with {min(sizes)}, "
            f"but each replica needs at least {case.accumulate}"
        )
    return strategy.batch_obstacle(sizes)


def why_no_baseline(case: Case) -> str:
    """Return why a case is not the same mathematics as training on a single device, or "" if it is."""
    if not case.distribution.is_distributed:
        return "it runs on a single device itself"
    if case.distribution.samples_by_rank:
        return "DistributedSampler takes the samples in another order"
    if case.model.has_batch_norm and case.replicas * case.accumulate > 1:
        return "batch norm normalizes each replica's part of the batch by its own statistics"
    if case.dropout and case.replicas * case.accumulate > 1:
        return "each replica and each micro-batch draws its own dropout masks"
    return ""


def baseline(case: Case) -> Case:
    """Return the same training on one device, without accumulation: each batch is computed at once."""
    return replace(case, name=f"{case.name.partition('/')[0]}/single", strategy="single", **UNUSED)


Indices = NDArray[np.int64]


def split(batch: Sequence[int] | Indices, case: schema.Case) -> list[Indices]:
    """Cut a batch into consecutive parts, one for each replica, as the case's strategy does.

    nn.DataParallel scatters by torch.chunk, in parts of ceil(samples / replicas) of which the last are
    smaller or empty; tf.distribute's experimental_distribute_dataset does the same. With other
    strategies the training program itself cuts the batch; there the parts are as equal as possible.
    """
    whole = np.asarray(batch, np.int64)
    if case.distribution.is_chunked:
        size = -(-len(whole) // case.replicas)
        return [whole[i * size : (i + 1) * size] for i in range(case.replicas)]
    return np.array_split(whole, case.replicas)


def distributed_sampler(size: int, replicas: int, seed: int, epoch: int) -> list[list[int]]:
    """Return, for each rank, the indices of one epoch of a shuffled torch.utils.data.DistributedSampler.

    As documented there: a permutation seeded by seed + epoch, extended from its own beginning to a
    multiple of the number of ranks, and dealt to the ranks in turn. The permutation is torch.randperm's:
    a Fisher-Yates shuffle with a 32-bit Mersenne Twister (ATen/native/TensorFactories.cpp, randperm_cpu).
    """
    twister: Any = np.random.RandomState((seed + epoch) % 2**32)._bit_generator  # seeded like std::mt19937
    order = list(range(size))
    for i, draw in enumerate(twister.random_raw(size - 1).tolist()):
        j = i + draw % (size - i)
        order[i], order[j] = order[j], order[i]
    dealt = np.resize(order, -(-size // replicas) * replicas).tolist()
    return [dealt[rank::replicas] for rank in range(replicas)]
