"""Other samples, or samples that look otherwise."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

from parity.config import schema, shards
from parity.config.shards import Indices
from torch_impl.harness import data
from torch_impl.harness.faults.mutate import Patches, constant, replaced
from torch_impl.strategies import all_reduce

Tensors = Callable[..., tuple[tuple[torch.Tensor, ...], torch.Tensor]]


def _rotated(split: Callable[..., list[Indices]]) -> Callable[..., list[Indices]]:
    """Replica 1 trains on replica 0's samples."""

    def other(batch: Any, case: schema.Case) -> list[Indices]:
        parts = split(batch, case)
        return [parts[0], parts[0][: len(parts[1])], *parts[2:]] if len(parts) > 1 else parts

    return other


def _same_epoch(set_epoch: Callable[..., None]) -> Callable[..., None]:
    return lambda self, epoch: None


def _full_batches_only(loader: type[DataLoader]) -> Callable[..., DataLoader]:
    return functools.partial(loader, drop_last=True)


def _channels_reversed(tensors: Tensors) -> Tensors:
    """Blue, green, red."""

    def other(*args: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        (images,), target = tensors(*args)
        return (images.flip(1),), target

    return other


def _targets_of_others(tensors: Tensors) -> Tensors:
    """Each sample has the target of the one before it."""

    def other(*args: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        inputs, target = tensors(*args)
        return inputs, target.roll(1, 0)

    return other


FAULTS: dict[str, Patches] = {
    "shard.rotated": replaced(shards, "split", _rotated),
    "sampler.epoch": replaced(DistributedSampler, "set_epoch", _same_epoch),
    "sampler.shuffle": constant(DistributedSampler, "shuffle", False),
    "sampler.drop_last": replaced(all_reduce, "DataLoader", _full_batches_only),
    "input.channels": replaced(data, "tensors", _channels_reversed),
    "target.order": replaced(data, "tensors", _targets_of_others),
}
