"""Which samples of a batch go to which replica."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.config import schema

Indices = NDArray[np.int64]


def split(batch: Sequence[int] | Indices, case: schema.Case) -> list[Indices]:
    """A batch cut into consecutive parts, one for each replica, as the case's strategy cuts it.

    nn.DataParallel scatters by torch.chunk: parts of ceil(samples / replicas), the last ones smaller
    or empty; so does tf.distribute's experimental_distribute_dataset. Elsewhere the program that calls
    decides: parts as equal as can be.
    """
    whole = np.asarray(batch, np.int64)
    if case.strategy == "data_parallel" or case.distribute_dataset:
        size = -(-len(whole) // case.replicas)
        return [whole[i * size : (i + 1) * size] for i in range(case.replicas)]
    return np.array_split(whole, case.replicas)


def distributed_sampler(size: int, replicas: int, seed: int, epoch: int) -> list[list[int]]:
    """The indices of one epoch that torch.utils.data.DistributedSampler gives each rank (shuffled).

    Its documentation: a permutation from seed + epoch, filled up from its own beginning until the
    ranks divide it, dealt out in turn. The permutation is torch.randperm's: Fisher and Yates's
    shuffle by a 32-bit Mersenne Twister (ATen/native/TensorFactories.cpp, randperm_cpu).
    """
    order = _randperm(size, seed + epoch)
    total = -(-size // replicas) * replicas
    while len(order) < total:
        order += order[: total - len(order)]
    return [order[rank:total:replicas] for rank in range(replicas)]


def _randperm(size: int, seed: int) -> list[int]:
    twister: Any = np.random.RandomState(seed % 2**32)._bit_generator  # seeded as std::mt19937 is
    order = list(range(size))
    for i, draw in enumerate(twister.random_raw(size - 1).tolist()):
        j = i + draw % (size - i)
        order[i], order[j] = order[j], order[i]
    return order
