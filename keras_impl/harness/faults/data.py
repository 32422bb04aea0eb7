"""Other samples, or samples that look otherwise."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import tensorflow as tf

from keras_impl.harness import data
from keras_impl.harness.faults.mutate import Patches, replaced
from keras_impl.strategies import all_reduce
from parity.config import schema, shards
from parity.config.shards import Indices
from parity.data import batches

Tensors = Callable[..., tuple[tuple[tf.Tensor, ...], tf.Tensor]]
Order = Callable[[schema.Case, int, int, int], Indices]
Sampler = Callable[[int, int, int, int], list[list[int]]]


def _rotated(split: Callable[..., list[Indices]]) -> Callable[..., list[Indices]]:
    """Replica 1 trains on replica 0's samples."""

    def other(batch: Any, case: schema.Case) -> list[Indices]:
        parts = split(batch, case)
        return [parts[0], parts[0][: len(parts[1])], *parts[2:]] if len(parts) > 1 else parts

    return other


def _same_epoch(sampler: Sampler) -> Sampler:
    return lambda size, replicas, seed, epoch: sampler(size, replicas, seed, 0)


def _contiguous(sampler: Sampler) -> Sampler:
    """The order cut into parts, where it is to be dealt out in turn."""

    def other(size: int, replicas: int, seed: int, epoch: int) -> list[list[int]]:
        dealt = sampler(size, replicas, seed, epoch)
        order = list(chain.from_iterable(zip(*dealt, strict=True)))
        each = len(dealt[0])
        return [order[i * each : (i + 1) * each] for i in range(replicas)]

    return other


def _next_batch(order: Order) -> Order:
    """The batch that is to come next, in place of this one."""
    return lambda case, size, start, count: order(case, size, start + count, count)


def _last_dropped(order: Order) -> Order:
    return lambda case, size, start, count: order(case, size, start, count)[:-1]


def _inputs(change: Callable[[tf.Tensor], tf.Tensor]) -> Patches:
    def other(tensors: Tensors) -> Tensors:
        def changed(*args: Any) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
            inputs, target = tensors(*args)
            return tuple(change(each) for each in inputs), target

        return changed

    return replaced(data, "tensors", other)


def _shifted_target(tensors: Tensors) -> Tensors:
    """(N, T): each word is compared with the one behind the right one."""

    def other(*args: Any) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        inputs, target = tensors(*args)
        return inputs, tf.roll(target, -1, axis=1)

    return other


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
