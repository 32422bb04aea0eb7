"""Data parallelism in one process: tf.distribute.MirroredStrategy, one replica of the model per device.

Every device holds all variables, and each replica gets its part of every batch. The optimizer sums the gradients over
the replicas. So each replica's loss is multiplied by its part's share of the batch: the sum is then the mean over all
samples, even if the parts are not equally large.
"""

from collections.abc import Callable

import keras
import tensorflow as tf
from keras.optimizers import Optimizer

from keras_impl.losses import Loss
from keras_impl.strategies import single
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, Placed, ReplicaSteps, Steps

ReplicaStep = Callable[[list[MicroBatch]], None]
FIRST = 0  # the replica whose batch-norm statistics are used and saved


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[str], input_shape: tuple) -> Placed:
    """Build the model and its optimizer, with a copy of each variable on every device."""
    return mirrored(make_model, make_optimizer, mirrored_strategy(devices), input_shape)


def mirrored_strategy(devices: list[str]) -> tf.distribute.MirroredStrategy:
    """Return a MirroredStrategy over the devices.

    On GPUs the reduction is TensorFlow's default, NCCL. The default on CPUs, collective ops, works for one model and
    one precision per process: the next strategy fails on the first one's collectives ("expected data_type"). Copying to
    one device and back always works.
    """
    on_gpus = all("GPU" in device for device in devices)
    reduction = None if on_gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def mirrored(
    make_model: MakeModel, make_optimizer: MakeOptimizer, strategy: tf.distribute.Strategy, input_shape: tuple
) -> Placed:
    """Build the model and its optimizer within the strategy's scope."""
    with strategy.scope():
        model, optimizer = make_model(), make_optimizer()
        model.build(input_shape)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def train(model: keras.Model, optimizer: Optimizer, loss: Loss, steps: ReplicaSteps, on_step: OnStep) -> None:
    """Make one update per step, from the micro-batches of every replica; then call `on_step`."""

    def replica_step(micro_batches: list[MicroBatch]) -> None:
        optimizer.apply(single.gradients(model, loss, micro_batches), model.trainable_variables)

    on_replicas(model.distribute_strategy, replica_step, steps, on_step)


def on_replicas(
    strategy: tf.distribute.Strategy, replica_step: ReplicaStep, steps: ReplicaSteps, on_step: OnStep
) -> None:
    """Run each step on all replicas at once, each with its own micro-batches; then call `on_step`."""

    @tf.function(autograph=False)
    def train_step(parts: list[MicroBatch]) -> None:
        strategy.run(replica_step, args=(parts,))

    for parts in steps:
        train_step(per_replica(strategy, parts))
        on_step()


def fit(model: keras.Model, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Train like `train`, but through compile and fit, on whole batches that Keras splits into equal parts.

    Keras sums over the replicas as well; with a plain loss function, weighting each replica's part is up to the caller.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    single.fit(model, optimizer, lambda outputs, target: loss(outputs, target) / replicas, steps, on_step)


def evaluate(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """Return every replica's outputs with replica 0's batch-norm statistics, the only ones that nn.DataParallel has."""
    model.distribute_strategy.run(take_first_buffers, args=(model,))
    return outputs(model, inputs)


def outputs(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """Return the outputs of every replica for its own inputs, each with its own batch-norm statistics."""
    strategy = model.distribute_strategy
    return strategy.run(single.evaluate, args=(model, per_replica(strategy, inputs)))


def take_first_buffers(model: keras.Model) -> None:
    """Set this replica's batch-norm statistics to replica 0's; called within a replica.

    Without this each replica keeps its own: Keras neither averages nor broadcasts them.
    """
    replica = tf.distribute.get_replica_context()
    # The batch-norm statistics; no dropout seeds are among them.
    buffers = [variable.value for variable in model.non_trainable_weights]
    if not buffers:
        return
    # tf.distribute has no broadcast, so take a sum to which only replica 0 contributes.
    is_first = replica.replica_id_in_sync_group == FIRST
    contributions = [tf.where(is_first, buffer, tf.zeros_like(buffer)) for buffer in buffers]
    for buffer, value in zip(buffers, replica.all_reduce(tf.distribute.ReduceOp.SUM, contributions), strict=True):
        buffer.assign(value)


def per_replica(strategy: tf.distribute.Strategy, parts: list) -> list:
    """Turn a list with one entry per replica into the distributed value that strategy.run passes on."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )
