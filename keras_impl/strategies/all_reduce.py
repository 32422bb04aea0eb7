"""Data parallelism by hand: a training loop of its own, which reduces the gradients itself.

MirroredStrategy only keeps the copies of the variables and runs the replicas; shards, order and
reduction are written out here, as one does on the primitives of torch.distributed.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_impl.losses import Loss
from keras_impl.strategies import single
from keras_impl.strategies.data_parallel import mirrored, mirrored_strategy, outputs, per_replica
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch
from parity.config.shards import distributed_sampler


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, and its optimizer, with a copy of each variable on every device."""
    model, optimizer = mirrored(make_model, make_optimizer, mirrored_strategy(devices), input_shape)
    optimizer.gradients_are_reduced = True  # or the optimizer would sum them once more
    return model, optimizer


def batches(samples: Sequence[Any], batch: int, steps: int, seed: int) -> Iterator[list[list[MicroBatch]]]:
    """`steps` steps; `samples`: the data as each replica reads it.

    The replicas' shards are those of torch.utils.data.DistributedSampler, shuffled afresh in every epoch.
    """
    replicas, taken = len(samples), 0
    share = tf.constant(1 / replicas, keras.config.floatx())  # the same for all: shards are equally long
    for epoch in itertools.count():
        shards = distributed_sampler(len(samples[0]), replicas, seed, epoch)
        for start in range(0, len(shards[0]), batch // replicas):
            if taken == steps:
                return
            taken += 1
            chosen = [shard[start : start + batch // replicas] for shard in shards]
            yield [[(*samples[i].__getitems__(indices), share)] for i, indices in enumerate(chosen)]


def train(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[list[MicroBatch]]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step, from the micro-batches of every replica; then `on_step()`."""
    strategy = model.distribute_strategy

    def replica_step(micro_batches: list[MicroBatch]) -> None:
        reduced = all_reduce(single.gradients(model, loss, micro_batches))
        optimizer.apply(reduced, model.trainable_variables)

    @tf.function(autograph=False)
    def train_step(parts: list[MicroBatch]) -> None:
        strategy.run(replica_step, args=(parts,))

    for parts in steps:
        train_step(per_replica(strategy, parts))
        on_step()


def all_reduce(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """In a replica: the sum over all replicas."""
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)


def evaluate(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """The outputs of every replica for its own inputs."""
    return outputs(model, inputs)
