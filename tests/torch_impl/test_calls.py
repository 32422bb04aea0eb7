"""The stack of the modules that are being called: whoever asks, it is the same one, and it is empty afterwards."""

import pytest
import torch
from torch import nn

from torch_impl.record import calls, tree


class Asking(nn.Module):
    """Notes where the stack says that it is being called."""

    def __init__(self, paths: dict[nn.Module, str]):
        super().__init__()
        self.paths, self.seen = paths, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(calls.innermost(self.paths))
        if x.isnan().any():
            raise ValueError
        return x


def asking() -> tuple[nn.Module, Asking]:
    paths: dict[nn.Module, str] = {}
    inner = Asking(paths)
    model = nn.Sequential(nn.Sequential(inner), nn.Identity())
    paths |= tree.paths(model)
    return model, inner


def test_the_innermost_module_is_the_one_that_is_being_called():
    model, inner = asking()
    with calls.tracked():
        model(torch.zeros(2))
    model(torch.zeros(2))  # no longer tracked
    assert inner.seen == ["0.0", None]
    del inner.paths[inner]
    with calls.tracked():
        model(torch.zeros(2))
    assert inner.seen[-1] == "0"


def test_blocks_may_overlap():
    model, inner = asking()
    first, second = calls.tracked(), calls.tracked()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    model(torch.zeros(2))
    second.__exit__(None, None, None)
    model(torch.zeros(2))
    assert inner.seen == ["0.0", None]


def test_a_call_that_fails_is_over():
    model, _ = asking()
    with calls.tracked():
        with pytest.raises(ValueError):
            model(torch.full((2,), torch.nan))
        assert calls.running() == []


def test_a_call_that_is_left_by_no_exception_is_over_with_the_block():
    class Left(BaseException): ...

    def leave(*_) -> None:
        raise Left

    model, inner = asking()
    inner.register_forward_hook(leave)
    with pytest.raises(Left), calls.tracked():
        model(torch.zeros(2))
    assert calls.running() == []


def test_a_replica_is_called_under_the_name_of_its_original():
    model, inner = asking()
    with calls.tracked():
        replicas = nn.DataParallel(model, [])
        copies = calls._replicate(lambda _, module: [module._replicate_for_data_parallel()], replicas, inner)
        copies[0](torch.zeros(2))
    assert copies[0] is not inner and inner.seen == ["0.0"]


def test_what_is_reported_is_what_the_module_computes_with():
    model = nn.Sequential(nn.Identity())
    model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    given, returned = [], []
    with calls.observed(
        tree.inner(model), lambda call: given.append((call.path, *call.args)), lambda call, y: returned.append(y)
    ):
        model(torch.zeros(()))
    model(torch.zeros(()))
    assert given == [("0", 1.0)] and returned == [1.0]
