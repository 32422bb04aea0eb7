"""Faults of the data: other samples, or samples that are changed."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

from parity.config import schema, shards
from parity.config.shards import Indices
from torch_impl.faults.mutate import Patches, constant, replaced
from torch_impl.record import data
from torch_impl.strategies import all_reduce

Tensors = Callable[..., tuple[tuple[torch.Tensor, ...], torch.Tensor]]


def _rotated(split: Callable[..., list[Indices]]) -> Callable[..., list[Indices]]:
    """Give replica 1 the samples of replica 0."""

    def changed(batch: Any, case: schema.Case) -> list[Indices]:
        parts = split(batch, case)
        return [parts[0], parts[0][: len(parts[1])], *parts[2:]] if len(parts) > 1 else parts

    return changed


def _same_epoch(set_epoch: Callable[..., None]) -> Callable[..., None]:
    return lambda self, epoch: None


def _full_batches_only(loader: type[DataLoader]) -> Callable[..., DataLoader]:
    return functools.partial(loader, drop_last=True)


def _channels_reversed(tensors: Tensors) -> Tensors:
    """Reverse the order of the color channels."""

    def changed(*args: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        (images,), target = tensors(*args)
        return (images.flip(1),), target

    return changed


def _targets_of_others(tensors: Tensors) -> Tensors:
    """Give each sample the target of the previous one."""

    def changed(*args: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        inputs, target = tensors(*args)
        return inputs, target.roll(1, 0)

    return changed


FAULTS: dict[str, Patches] = {
    "shard.rotated": replaced(shards, "split", _rotated),
    "sampler.epoch": replaced(DistributedSampler, "set_epoch", _same_epoch),
    "sampler.shuffle": constant(DistributedSampler, "shuffle", False),
    "sampler.drop_last": replaced(all_reduce, "DataLoader", _full_batches_only),
    "input.channels": replaced(data, "tensors", _channels_reversed),
    "target.order": replaced(data, "tensors", _targets_of_others),
}
