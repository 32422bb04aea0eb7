"""Which samples go to which replica: PyTorch's own rules, written down as numbers."""

from typing import Any

import pytest

from parity.config import cases, schema
from parity.config.devices import distributed_sampler, split

# A strategy, and into how many micro-batches its replicas cut their parts.


def case(strategy: str, devices: int, **changes: Any) -> schema.Case:
    return cases.resolve("linear_stack/single", {"strategy": strategy, "devices": devices}, changes)


def sizes(strategy: str, devices: int, batch: int) -> list[int]:
    return [len(part) for part in split(range(batch), case(strategy, devices))]


@pytest.mark.parametrize(
    ("batch", "devices", "chunks"),
    [
        (32, 1, [32]),
        (33, 2, [17, 16]),
        (32, 3, [11, 11, 10]),
        (7, 3, [3, 3, 1]),
        (5, 4, [2, 2, 1]),
        (9, 4, [3, 3, 3]),
        (33, 8, [5, 5, 5, 5, 5, 5, 3]),
    ],
)
def test_data_parallel_scatters_as_torch_chunk_does(batch: int, devices: int, chunks: list[int]) -> None:
    """`chunks`: the sizes of torch.arange(batch).chunk(devices); torch leaves the empty ones away."""
    assert sizes("data_parallel", devices, batch) == chunks + [0] * (devices - len(chunks))
    dealt = split(range(batch), cases.resolve("simple_block/ddp@dataset", {"devices": devices}))
    assert list(map(len, dealt)) == sizes("data_parallel", devices, batch)  # as TensorFlow deals out


EQUAL = {(33, 1): [33], (33, 2): [17, 16], (7, 3): [3, 2, 2], (5, 4): [2, 1, 1, 1], (9, 4): [3, 2, 2, 2],
         (33, 8): [5, 4, 4, 4, 4, 4, 4, 4]}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "batch", "devices", "parts"),
    [
        *((strategy, *at, parts) for strategy in ("ddp", "all_reduce") for at, parts in EQUAL.items()),
        *(("hybrid", 33, devices, parts) for devices, parts in ((4, [17, 16]), (6, [11, 11, 11]), (8, [9, 8, 8, 8]))),
        *((strategy, 7, 3, [7]) for strategy in ("single", "round_robin", "send_recv", "pipeline")),
    ],
)
def test_the_others_split_as_equally_as_can_be(strategy: str, batch: int, devices: int, parts: list[int]) -> None:
    """A replica of hybrid is two devices, and a single one gets the whole batch."""
    assert sizes(strategy, devices, batch) == parts


# The sampler. The numbers are those of torch 2.13: torch.randperm with a torch.Generator of the seed, and
# torch.utils.data.DistributedSampler(shuffle=True) after set_epoch.


@pytest.mark.parametrize(
    ("size", "replicas", "seed", "epoch", "ranks"),
    [
        (10, 1, 0, 0, [[4, 1, 7, 5, 3, 9, 0, 8, 6, 2]]),  # the permutation itself
        (10, 1, 1, 0, [[5, 6, 1, 2, 0, 8, 9, 3, 7, 4]]),
        (13, 1, 7, 0, [[6, 5, 3, 9, 8, 4, 12, 0, 11, 10, 1, 7, 2]]),
        (6, 1, 2**32 + 5, 0, [[5, 0, 1, 3, 4, 2]]),
        (7, 3, 0, 0, [[4, 3, 1], [0, 2, 4], [5, 6, 0]]),
        (7, 3, 0, 1, [[0, 3, 4], [6, 5, 0], [1, 2, 6]]),
        (6, 2, 3, 0, [[4, 3, 1], [0, 2, 5]]),
        (10, 4, 5, 2, [[5, 1, 8], [0, 7, 2], [3, 9, 5], [4, 6, 0]]),
        (2, 5, 0, 0, [[0], [1], [0], [1], [0]]),
        (1, 3, 0, 0, [[0], [0], [0]]),
    ],
)
def test_the_ranks_get_what_torch_s_sampler_gives_them(
    size: int, replicas: int, seed: int, epoch: int, ranks: list[list[int]]
) -> None:
    assert distributed_sampler(size, replicas, seed, epoch) == ranks
