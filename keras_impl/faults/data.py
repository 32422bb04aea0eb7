"""Faults of the data: other samples, or samples that are changed."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import tensorflow as tf

from keras_impl.faults.mutate import Patches, replaced
from keras_impl.record import data
from keras_impl.strategies import all_reduce
from parity.config import schema, shards
from parity.config.shards import Indices
from parity.data import batches

Tensors = Callable[..., tuple[tuple[tf.Tensor, ...], tf.Tensor]]
Order = Callable[[schema.Case, int, int, int], Indices]
Sampler = Callable[[int, int, int, int], list[list[int]]]


def _rotated(split: Callable[..., list[Indices]]) -> Callable[..., list[Indices]]:
    """Give replica 1 the samples of replica 0."""

    def changed(batch: Any, case: schema.Case) -> list[Indices]:
        parts = split(batch, case)
        return [parts[0], parts[0][: len(parts[1])], *parts[2:]] if len(parts) > 1 else parts

    return changed


def _same_epoch(sampler: Sampler) -> Sampler:
    return lambda size, replicas, seed, epoch: sampler(size, replicas, seed, 0)


def _contiguous(sampler: Sampler) -> Sampler:
    """Cut the shuffled order into contiguous shards, instead of dealing it out in turn."""

    def changed(size: int, replicas: int, seed: int, epoch: int) -> list[list[int]]:
        dealt = sampler(size, replicas, seed, epoch)
        order = list(chain.from_iterable(zip(*dealt, strict=True)))
        size_of_shard = len(dealt[0])
        return [order[i * size_of_shard : (i + 1) * size_of_shard] for i in range(replicas)]

    return changed


def _next_batch(order: Order) -> Order:
    """Draw the next batch instead of this one."""
    return lambda case, size, start, count: order(case, size, start + count, count)


def _last_dropped(order: Order) -> Order:
    return lambda case, size, start, count: order(case, size, start, count)[:-1]


def _inputs(change: Callable[[tf.Tensor], tf.Tensor]) -> Patches:
    def other(tensors: Tensors) -> Tensors:
        def changed(*args: Any) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
            inputs, target = tensors(*args)
            return tuple(change(tensor) for tensor in inputs), target

        return changed

    return replaced(data, "tensors", other)


def _shifted_target(tensors: Tensors) -> Tensors:
    """Compare each word of (N, T) with the one after the right one."""

    def changed(*args: Any) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        inputs, target = tensors(*args)
        return inputs, tf.roll(target, -1, axis=1)

    return changed


FAULTS: dict[str, Patches] = {
    "shard.rotated": replaced(shards, "split", _rotated),
    "sampler.epoch": replaced(all_reduce, "distributed_sampler", _same_epoch),
    "sampler.order": replaced(all_reduce, "distributed_sampler", _contiguous),
    "sampler.offset": replaced(batches, "order", _next_batch),
    "sampler.drop_last": replaced(batches, "order", _last_dropped),
    "input.scale": _inputs(lambda x: x / 255),
    "input.layout": _inputs(lambda x: tf.transpose(x, (0, 2, 1, 3))),
    "target.shift": replaced(data, "tensors", _shifted_target),
}
