"""Data parallelism as DistributedDataParallel does it: one reduction per step, buffers from replica 0.

By MirroredStrategy in one process, or with `workers` by MultiWorkerMirroredStrategy in one process per
device, each of which TF_CONFIG tells about all and itself.
"""

import functools
from collections.abc import Callable, Iterable

import keras
import tensorflow as tf

from keras_impl.losses import Loss
from keras_impl.strategies import data_parallel, single
from keras_impl.strategies.data_parallel import mirrored, mirrored_strategy, per_replica, take_first_buffers
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
    workers: bool = False,
    broadcast_buffers: bool = True,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, and its optimizer, with a copy of each variable on every device.

    `broadcast_buffers`: batch-norm statistics are replica 0's; without it every replica keeps its own.
    """
    strategy = workers_strategy() if workers else mirrored_strategy(devices)
    model, optimizer = mirrored(make_model, make_optimizer, strategy, input_shape)
    model.broadcast_buffers = broadcast_buffers
    return model, optimizer


@functools.cache
def workers_strategy() -> tf.distribute.MultiWorkerMirroredStrategy:
    """The one of this process, which TensorFlow wants before it runs any op."""
    return tf.distribute.MultiWorkerMirroredStrategy()


def train(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[list[MicroBatch]]] | tf.data.Dataset,
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step, from the micro-batches of every replica; then `on_step()`.

    A tf.data.Dataset of whole batches (inputs, target) is cut and dealt out by TensorFlow.
    """
    strategy = model.distribute_strategy

    def replica_step(micro_batches: list[MicroBatch]) -> None:
        if model.broadcast_buffers:
            take_first_buffers(model)
        # The micro-batches are added up here, in the replica: they take one reduction together.
        optimizer.apply(single.gradients(model, loss, micro_batches), model.trainable_variables)

    @tf.function(autograph=False)
    def train_step(parts: list[MicroBatch]) -> None:
        strategy.run(replica_step, args=(parts,))

    @tf.function(autograph=False)
    def train_on(batch: tuple) -> None:
        strategy.run(lambda inputs, target: replica_step([((inputs,), target, share_of(target))]), args=batch)

    if isinstance(steps, tf.data.Dataset):
        train_step, steps = train_on, strategy.experimental_distribute_dataset(steps)
    else:
        steps = (per_replica(strategy, parts) for parts in steps)
    for parts in steps:
        train_step(parts)
        on_step()


def share_of(target: tf.Tensor) -> tf.Tensor:
    """In a replica: its part of the samples of all, who may have got different numbers."""
    samples = tf.shape(target, tf.int64)[0]
    total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, samples)
    return tf.cast(samples / total, keras.config.floatx())


def evaluate(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """The outputs of every replica for its own inputs."""
    return data_parallel.evaluate(model, inputs) if model.broadcast_buffers else data_parallel.outputs(model, inputs)
