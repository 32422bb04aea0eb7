"""Data parallelism written out: a custom training loop with its own samples per replica, and an explicit all_reduce.

MirroredStrategy only holds the copies of the variables and runs the replicas; sharding, shuffling and reduction are
written out, as one writes them with torch.distributed.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.optimizers import Optimizer

from keras_impl.losses import Loss
from keras_impl.strategies import single
from keras_impl.strategies.data_parallel import mirrored, mirrored_strategy, on_replicas, outputs
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, Placed, ReplicaSteps
from parity.config.devices import distributed_sampler


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[str], input_shape: tuple) -> Placed:
    """Build the model and its optimizer, with a copy of each variable on every device."""
    model, optimizer = mirrored(make_model, make_optimizer, mirrored_strategy(devices), input_shape)
    optimizer.gradients_are_reduced = True  # otherwise the optimizer would sum them once more
    return model, optimizer


def batches(samples: Sequence[Any], batch: int, steps: int, seed: int) -> Iterator[list[list[MicroBatch]]]:
    """Yield `steps` steps, each a list with the micro-batches of every replica, reshuffled in every epoch.

    `samples` holds one data set per replica, which returns (inputs, target) for a list of indices. The shards are those
    of torch.utils.data.DistributedSampler, which repeats some samples so that all shards are equally long.
    """
    replicas, count = len(samples), 0
    share = tf.constant(1 / replicas, keras.config.floatx())  # equal for all, because the shards are equally long
    for epoch in itertools.count():
        shards = distributed_sampler(len(samples[0]), replicas, seed, epoch)
        for start in range(0, len(shards[0]), batch // replicas):
            if count == steps:
                return
            count += 1
            indices_by_replica = [shard[start : start + batch // replicas] for shard in shards]
            yield [[(*samples[i].__getitems__(indices), share)] for i, indices in enumerate(indices_by_replica)]


def train(model: keras.Model, optimizer: Optimizer, loss: Loss, steps: ReplicaSteps, on_step: OnStep) -> None:
    """Make one update per step, from the micro-batches of every replica; then call `on_step`."""

    def replica_step(micro_batches: list[MicroBatch]) -> None:
        reduced = all_reduce(single.gradients(model, loss, micro_batches))
        optimizer.apply(reduced, model.trainable_variables)

    on_replicas(model.distribute_strategy, replica_step, steps, on_step)


def all_reduce(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return the sum of the gradients over all replicas; called within a replica."""
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)


def evaluate(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """Return the outputs of every replica for its own inputs."""
    return outputs(model, inputs)
