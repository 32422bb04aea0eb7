"""Which samples go to which replica: PyTorch's own rules, written down as numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.config import cases, schema
from parity.config.devices import distributed_sampler, split
from parity.data.batches import Dataset

REPLICATED = ("data_parallel", "ddp", "all_reduce", "hybrid")
NUMBERS = st.sampled_from([1, 2, 3, 4, 8])
# A strategy, and into how many micro-batches its replicas cut their parts.
CUT = st.one_of(
    st.tuples(st.sampled_from(["data_parallel", "all_reduce"]), st.just(1)),
    st.tuples(st.sampled_from(["ddp", "hybrid"]), st.integers(1, 3)),
)


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


@settings(max_examples=80)
@given(
    strategy=st.sampled_from(REPLICATED),
    devices=NUMBERS,
    batch=st.lists(st.integers(0, 999), min_size=1, max_size=70),
)
def test_every_sample_goes_to_one_replica_and_the_order_is_kept(strategy: str, devices: int, batch: list[int]) -> None:
    chosen = case(strategy, devices)
    parts = split(batch, chosen)
    assert len(parts) == chosen.replicas
    assert np.concatenate(parts).tolist() == batch
    counts = [len(part) for part in parts]
    assert counts == sorted(counts, reverse=True)
    assert strategy == "data_parallel" or counts[0] - counts[-1] <= 1


@settings(max_examples=30)
@given(cut=CUT, devices=NUMBERS, batch=st.integers(24, 37))
def test_the_shares_of_a_step_are_those_of_its_samples(cut: tuple[str, int], devices: int, batch: int) -> None:
    strategy, parts = cut
    data = Dataset(case(strategy, devices, data={"batch": batch, "source": "synthetic"}, accumulate=parts, steps=1))
    (step,) = data.steps()
    shares = [micro.share for replica in step for micro in replica]
    assert shares == [len(micro.indices) / batch for replica in step for micro in replica]
    assert sum(shares) == pytest.approx(1.0, abs=1e-14)
    assert [len(replica) for replica in step] == [parts] * len(step)


def test_the_loss_of_a_sum_weighs_one_in_every_replica() -> None:
    data = Dataset(case("ddp", 3, data={"source": "synthetic"}, loss={"reduction": "sum"}))
    assert [micro.share for replica in next(data.steps()) for micro in replica] == [1.0] * 3


@pytest.mark.parametrize("strategy", REPLICATED)
def test_the_evaluation_is_split_as_the_first_step_is(strategy: str) -> None:
    data = Dataset(case(strategy, 4, data={"batch": 33, "source": "synthetic"}))
    first = [micro.indices.tolist() for (micro,) in next(data.steps())]
    assert [part.indices.tolist() for part in data.evaluation()] == first


# The sampler. The numbers are those of torch 2.13: torch.randperm with a torch.Generator of the seed, and
# torch.utils.data.DistributedSampler(shuffle=True) after set_epoch.


def test_a_long_permutation_is_torch_s() -> None:
    ((*order,),) = distributed_sampler(5000, 1, 1, 2)
    assert order[:5] == [3986, 1813, 3813, 4499, 1704]
    assert order[-5:] == [4979, 2614, 1872, 1544, 765]


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


@settings(max_examples=80)
@given(size=st.integers(1, 60), replicas=st.integers(1, 9), seed=st.integers(0, 99), epoch=st.integers(0, 9))
def test_every_sample_is_dealt_out_and_every_rank_gets_as_many(size: int, replicas: int, seed: int, epoch: int) -> None:
    ranks = distributed_sampler(size, replicas, seed, epoch)
    assert [len(rank) for rank in ranks] == [-(-size // replicas)] * replicas
    dealt = [index for turn in zip(*ranks, strict=True) for index in turn]
    assert sorted(dealt[:size]) == list(range(size))
    assert dealt[size:] == (dealt[:size] * replicas)[: len(dealt) - size]  # from its own beginning


def test_another_epoch_or_another_seed_is_another_order() -> None:
    orders = [distributed_sampler(40, 2, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (0, 2), (9, 0))]
    assert len({str(order) for order in orders}) == 4
    assert distributed_sampler(40, 2, 0, 1) == distributed_sampler(40, 2, 1, 0)  # torch adds them
