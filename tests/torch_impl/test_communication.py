"""How long a step communicates, as PyTorch's profiler tells it."""

import pytest
import torch
import torch.distributed as dist

from parity.core.clock import Clock
from torch_impl.doctor import observer


def timed(step) -> float | None:
    clock = Clock(lambda: None)
    with observer.timed_communication(clock), clock.step():
        step()
    (found,) = clock.result("cpu")
    assert found.communication is None or 0 <= found.communication <= found.step
    return found.communication


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_without_a_group_nothing_is_told():
    assert timed(lambda: torch.ones(8) + 1) is None


@pytest.mark.usefixtures("group")
def test_what_a_collective_takes_is_told():
    large = torch.ones(1_000_000)
    assert timed(lambda: torch.ones(8) + 1) == 0
    assert timed(lambda: dist.all_reduce(large)) > 0
    assert timed(lambda: dist.all_reduce(large, async_op=True).wait()) > 0
