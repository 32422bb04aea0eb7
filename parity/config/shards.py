"""The distribution of samples over replicas."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.config import schema

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
    order = _randperm(size, seed + epoch)
    total = -(-size // replicas) * replicas
    while len(order) < total:
        order += order[: total - len(order)]
    return [order[rank:total:replicas] for rank in range(replicas)]


def _randperm(size: int, seed: int) -> list[int]:
    twister: Any = np.random.RandomState(seed % 2**32)._bit_generator  # seeded like std::mt19937
    order = list(range(size))
    for i, draw in enumerate(twister.random_raw(size - 1).tolist()):
        j = i + draw % (size - i)
        order[i], order[j] = order[j], order[i]
    return order
