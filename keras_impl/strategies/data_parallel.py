"""One replica of the model per device, each with its part of every batch: tf.distribute.MirroredStrategy.

Every device holds all variables. The optimizer sums the gradients over the replicas, so that the
loss of a replica weighs what its part of the batch does: parts of any sizes give the mean over all.
"""

from collections.abc import Callable, Iterable

import keras
import tensorflow as tf

from keras_impl.losses import Loss
from keras_impl.strategies import single
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch

FIRST = 0  # the replica whose batch-norm statistics count


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, and its optimizer, with a copy of each variable on every device."""
    return mirrored(make_model, make_optimizer, mirrored_strategy(devices), input_shape)


def mirrored_strategy(devices: list[str]) -> tf.distribute.MirroredStrategy:
    """On GPUs TensorFlow's own choice, NCCL.

    Its choice for CPUs, collectives, serves one model and one precision per process: the next strategy
    meets the first one's collectives, "expected data_type". Copying to one device and back always works.
    """
    on_gpus = all("GPU" in device for device in devices)
    reduction = None if on_gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def mirrored(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    strategy: tf.distribute.Strategy,
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Model and optimizer, built under a strategy."""
    with strategy.scope():
        model, optimizer = make_model(), make_optimizer()
        model.build(input_shape)
        optimizer.build(model.trainable_variables)
    return model, optimizer


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
        optimizer.apply(single.gradients(model, loss, micro_batches), model.trainable_variables)

    @tf.function(autograph=False)
    def train_step(parts: list[MicroBatch]) -> None:
        strategy.run(replica_step, args=(parts,))

    for parts in steps:
        train_step(per_replica(strategy, parts))
        on_step()


def fit(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """The same through compile and fit, over whole batches, which Keras cuts into equal parts.

    Keras sums over the replicas too, and leaves it to a functional loss to weigh what each gives.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    single.fit(model, optimizer, lambda outputs, target: loss(outputs, target) / replicas, steps, on_step)


def evaluate(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """The outputs of every replica for its own inputs, by replica 0's statistics as nn.DataParallel's are."""
    model.distribute_strategy.run(take_first_buffers, args=(model,))
    return outputs(model, inputs)


def outputs(model: keras.Model, inputs: list[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """The outputs of every replica for its own inputs, by its own statistics."""
    strategy = model.distribute_strategy
    return strategy.run(single.evaluate, args=(model, per_replica(strategy, inputs)))


def take_first_buffers(model: keras.Model) -> None:
    """In a replica: its batch-norm statistics become replica 0's. By itself each keeps its own."""
    replica = tf.distribute.get_replica_context()
    buffers = [variable.value for variable in model.non_trainable_weights]  # no seeds of dropout among them
    if not buffers:
        return
    # tf.distribute has no broadcast: a sum to which only replica 0 contributes.
    is_first = replica.replica_id_in_sync_group == FIRST
    given = [tf.where(is_first, buffer, tf.zeros_like(buffer)) for buffer in buffers]
    for buffer, value in zip(buffers, replica.all_reduce(tf.distribute.ReduceOp.SUM, given), strict=True):
        buffer.assign(value)


def per_replica(strategy: tf.distribute.Strategy, parts: list) -> list:
    """What is listed by replica as what strategy.run hands to each."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )
