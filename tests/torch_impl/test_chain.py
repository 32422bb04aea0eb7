"""Modules that a step calls one by one are noted, told to another run, and called there as one."""

import msgspec
import pytest
import torch
from torch import nn

from parity.core.errors import UsageError
from parity.pairs.script_records import Fetched
from torch_impl.instruments.chain import Chain, Links


class Scaled(nn.Module):
    """Takes an option beside its tensor."""

    def forward(self, x: torch.Tensor, factor: object, pair: tuple[int, int] = (0, 1)) -> torch.Tensor:
        return x * (factor if isinstance(factor, float) else 2.0) + pair[1]


def noted(factor: object) -> tuple[Links, list[nn.Module]]:
    links, modules = Links(), [nn.Linear(3, 2), Scaled()]
    x = torch.ones(4, 3)
    first = modules[0](x)
    links.note(modules[0], (x,), {}, first, {"input": x})
    links.note(modules[1], (first, factor), {"pair": (2, 3)}, modules[1](first, factor), {"x": first})
    return links, modules


def test_a_chain_is_called_as_one_in_another_run() -> None:
    links, modules = noted(0.3)
    described = links.described(lambda module: type(module).__name__.lower(), modules.index)
    fetched = msgspec.json.decode(msgspec.json.encode(described), type=Fetched)
    chain = Chain({"linear": modules[0], "scaled": modules[1]}, fetched)
    x = torch.randn(4, 3)
    whole = chain(x)
    assert torch.equal(whole, modules[1](modules[0](x), 0.3, (2, 3)))
    between = chain.taken(modules[0], (x,), {})
    assert chain.taken(modules[1], (between, 0.3), {"pair": (2, 3)}) is whole
    for given in ((between.clone(), 0.3), (between, between)):
        with pytest.raises(UsageError, match="Scaled is not given what the modules before it have returned last"):
            chain.taken(modules[1], given, {})


def test_what_another_run_cannot_be_told_is_no_link() -> None:
    links, modules = noted(object())
    assert not links.are_one
    assert links.described(str, modules.index) is None
