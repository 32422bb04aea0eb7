"""Faults of placement: correct values on wrong devices."""

from collections.abc import Callable, Sequence

import torch

from torch_impl.faults.mutate import Patches, replaced, together
from torch_impl.models import block
from torch_impl.strategies import branch_parallel, pipeline, send_recv
from torch_impl.strategies.round_robin import RoundRobin

Cut = Callable[..., list[block.Stage]]


def _second_with_first(make: Callable[..., None]) -> Callable[..., None]:
    """Put the second block on the first one's device."""

    def changed(self: RoundRobin, blocks: list[block.Block], devices: list[torch.device]) -> None:
        make(self, blocks, devices)
        self.devices[1] = devices[0]
        self.parts[1].to(devices[0])

    return changed


def _uneven(cut: Cut) -> Cut:
    """Put the second stage's first block into the first stage."""

    def changed(blocks: list[block.Block], count: int, sizes: Sequence[int] = ()) -> list[block.Stage]:
        first, second, *rest = cut(blocks, count, sizes)
        return [block.Stage(first.blocks + second.blocks[:1]), block.Stage(second.blocks[1:]), *rest]

    return changed


def _with_main_path(branch: Callable[..., None]) -> Callable[..., None]:
    return lambda module, device: branch(module, None)


def _not_moved(forward: Callable[..., block.Tensors]) -> Callable[..., block.Tensors]:
    """Let round_robin call its blocks without moving the activations."""
    return lambda self, *tensors: block.Stage(self.blocks)(*tensors)


FAULTS: dict[str, Patches] = {
    "placement.layer": together(
        replaced(RoundRobin, "__init__", _second_with_first),
        replaced(send_recv, "stages", _uneven),
        replaced(pipeline, "stages", _uneven),
        replaced(branch_parallel, "branch", _with_main_path),
    ),
    "placement.move": replaced(RoundRobin, "forward", _not_moved),
}
