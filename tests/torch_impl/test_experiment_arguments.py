"""Copies of what a module is called with."""

import threading

import torch
from torch import nn

from torch_impl.experiment.call import copied


class Cache:
    """What a module may be given, and change: the keys of the tokens before."""

    def __init__(self, *keys: torch.Tensor) -> None:
        self.keys = list(keys)


def test_what_a_module_may_change_is_copied() -> None:
    weight = torch.ones(3, requires_grad=True)
    computed, module = 2.0 * weight, nn.Linear(3, 3)
    cache, given, same = copied((Cache(computed), {"x": computed}, module))
    assert same is module
    assert torch.equal(cache.keys[0], computed) and cache.keys[0] is not computed and cache.keys[0].is_leaf
    assert given["x"] is not computed and given["x"].is_leaf and given["x"].requires_grad
    cache.keys.append(weight)
    with torch.no_grad():
        cache.keys[0].zero_()
    assert torch.equal(computed, torch.full((3,), 2.0))


def test_what_cannot_be_copied_is_shared() -> None:
    lock = threading.Lock()
    assert copied([lock])[0] is lock
