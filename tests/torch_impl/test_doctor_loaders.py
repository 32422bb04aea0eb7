"""Batches that a worker of a data loader returns as another one did."""

import pytest
import torch
from observed import line, observe
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Drawn(Dataset):
    """Random samples, of the worker's own generator or of a copy of one."""

    def __init__(self, own):
        self.generator, self.own = torch.Generator().manual_seed(0), own

    def __len__(self):
        return 8

    def __getitem__(self, _):
        return torch.rand(3, generator=None if self.own else self.generator)


class Streamed(IterableDataset):
    """Eight samples, all of them from each worker or each from one."""

    def __init__(self, shared):
        self.shared = shared

    def __iter__(self):
        info = get_worker_info()
        for number in range(info.id, 8, info.num_workers) if self.shared else range(8):
            yield torch.full((3,), float(number)) + torch.arange(3.0)


def repeated(data: Dataset, workers: int = 2, size: int = 2) -> list:
    return seen(lambda: DataLoader(data, batch_size=size, num_workers=workers))


def seen(load) -> list:
    def train(net, batch):
        for _ in load():
            pass

    return [(each, train) for each in observe(nn.Identity, train, x=torch.ones(1)).steps[0].repeated]


def test_copies_of_a_generator_draw_the_same():
    (first, train), second = repeated(Drawn(own=False))
    assert (first.first, first.batch, first.whole) == (0, 1, False)
    assert (second[0].first, second[0].batch) == (2, 3)
    assert first.place.source == line(train, "for _ in load()")


def test_each_worker_goes_through_the_whole_stream():
    (first, _), *_ = repeated(Streamed(shared=False))
    assert first.whole


@pytest.mark.parametrize(
    ("data", "workers", "size"),
    [(Drawn(own=True), 2, 2), (Streamed(shared=True), 2, 2), (Streamed(shared=False), 2, 1), (Drawn(own=False), 1, 2)],
    ids=["own generators", "shared stream", "single samples", "one worker"],
)
def test_other_loaders_are_passed_over(data, workers, size):
    assert repeated(data, workers, size) == []


def test_the_same_sample_again_and_again_is_no_finding():
    assert repeated(torch.utils.data.TensorDataset(torch.ones(8, 3))) == []


def test_an_iterator_may_live_for_several_steps():
    batches = iter(DataLoader(Drawn(own=False), batch_size=2, num_workers=2))
    steps = observe(nn.Identity, lambda net, batch: next(batches), 2, x=torch.ones(1)).steps
    assert [len(step.repeated) for step in steps] == [0, 1]
