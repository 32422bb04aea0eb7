"""Data parallelism as DistributedDataParallel does it: one reduction per step, and replica 0's buffers for all.

Uses MirroredStrategy in one process or, with `workers`, MultiWorkerMirroredStrategy with one process per device. The
environment variable TF_CONFIG then tells each process its index and the addresses of all.
"""

import functools

import keras
import tensorflow as tf
from keras.optimizers import Optimizer

from keras_impl.losses import Loss
from keras_impl.strategies import data_parallel, single
from keras_impl.strategies.data_parallel import mirrored, mirrored_strategy, on_replicas, take_first_buffers
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, Placed, ReplicaSteps


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
    workers: bool = False,
    broadcast_buffers: bool = True,
) -> Placed:
    """Build the model and its optimizer, with a copy of each variable on every device.

    With `broadcast_buffers`, all replicas use replica 0's batch-norm statistics; without it each keeps its own.
    """
    strategy = workers_strategy() if workers else mirrored_strategy(devices)
    model, optimizer = mirrored(make_model, make_optimizer, strategy, input_shape)
    model.broadcast_buffers = broadcast_buffers
    return model, optimizer


@functools.cache
def workers_strategy() -> tf.distribute.MultiWorkerMirroredStrategy:
    """Return this process's MultiWorkerMirroredStrategy, which must be made before TensorFlow runs any op."""
    return tf.distribute.MultiWorkerMirroredStrategy()


def train(
    model: keras.Model, optimizer: Optimizer, loss: Loss, steps: ReplicaSteps | tf.data.Dataset, on_step: OnStep
) -> None:
    """Make one update per step; then call `on_step`.

    `steps` holds the micro-batches of every replica, or is a tf.data.Dataset of whole batches (inputs, target), which
    TensorFlow splits and distributes.
    """
    strategy = model.distribute_strategy

    def replica_step(micro_batches: list[MicroBatch]) -> None:
        if model.broadcast_buffers:
            take_first_buffers(model)
        # The gradients of the micro-batches are summed within the replica, so that there is one reduction per step.
        optimizer.apply(single.gradients(model, loss, micro_batches), model.trainable_variables)

    @tf.function(autograph=False)
    def train_on(batch: tuple) -> None:
        strategy.run(lambda inputs, target: replica_step([((inputs,), target, share_of(target))]), args=batch)

    if not isinstance(steps, tf.data.Dataset):
        on_replicas(strategy, replica_step, steps, on_step)
        return
    for batch in strategy.experimental_distribute_dataset(steps):
        train_on(batch)
        on_step()


def share_of(target: tf.Tensor) -> tf.Tensor:
    """Return this replica's share of all samples of the batch; called within a replica.

    TensorFlow may have given the replicas different numbers of samples.
    """
    samples = tf.shape(target, tf.int64)[0]
    total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, samples)
    return tf.cast(samples / total, keras.config.floatx())


def evaluate(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """Return the outputs of every replica for its own inputs."""
    return data_parallel.evaluate(model, inputs) if model.broadcast_buffers else data_parallel.outputs(model, inputs)
