"""Faults of training: other samples, losses, optimizers, schedules and clipping."""

from collections.abc import Callable
from itertools import chain
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from keras_impl import losses, optimizers
from keras_impl.optimizers import SGD, Adam, AdamW, PyTorchClipping, StepLR, on_device_of_variable
from keras_impl.record import data
from keras_impl.strategies import all_reduce
from parity.config import schema
from parity.config.shards import Indices
from parity.data import batches
from parity.selftest.mutate import Patches, constant, replaced, together, wrapped

Batch = tuple[tuple[tf.Tensor, ...], tf.Tensor]
Order = Callable[[schema.Case, int, int, int], Indices]
Sampler = Callable[[int, int, int, int], list[list[int]]]
Loss = Callable[..., tf.Tensor]
Update = Callable[[Any, tf.Tensor, tf.Variable, tf.Tensor], None]


# Data.


def _same_epoch(sampler: Sampler, size: int, replicas: int, seed: int, epoch: int) -> list[list[int]]:
    return sampler(size, replicas, seed, 0)


def _contiguous(sampler: Sampler, size: int, replicas: int, seed: int, epoch: int) -> list[list[int]]:
    """Cut the shuffled order into contiguous shards, instead of dealing it out in turn."""
    dealt = sampler(size, replicas, seed, epoch)
    order = list(chain.from_iterable(zip(*dealt, strict=True)))
    size_of_shard = len(dealt[0])
    return [order[i * size_of_shard : (i + 1) * size_of_shard] for i in range(replicas)]


def _next_batch(order: Order, case: schema.Case, size: int, start: int, count: int) -> Indices:
    """Draw the next batch instead of this one."""
    return order(case, size, start + count, count)


def _last_dropped(order: Order, *args: Any) -> Indices:
    return order(*args)[:-1]


def _inputs(change: Callable[[tf.Tensor], tf.Tensor]) -> Patches:
    def changed(tensors: Callable[..., Batch], *args: Any) -> Batch:
        inputs, target = tensors(*args)
        return tuple(change(tensor) for tensor in inputs), target

    return wrapped(data, "tensors", changed)


def _shifted_target(tensors: Callable[..., Batch], *args: Any) -> Batch:
    """Compare each word of (N, T) with the one after the right one."""
    inputs, target = tensors(*args)
    return inputs, tf.roll(target, -1, axis=1)


# Losses.


def _sum_of_each_sample(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    return tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(outputs, target), axis=-1))


def _broadcast(loss: Loss, outputs: tf.Tensor, target: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
    """Compare outputs (N, 1) with a target (N,), which broadcasts to (N, N)."""
    return loss(outputs, tf.squeeze(target, axis=-1), *args, **kwargs)


def _absolute(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    return tf.reduce_mean(tf.abs(outputs - target))


def _softmax_before(loss: Loss, outputs: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
    return loss(tf.nn.softmax(outputs), *args, **kwargs)


def _logits_as_probabilities(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    """Compute Keras's cross entropy with from_logits=False."""
    probabilities = tf.clip_by_value(outputs, 1e-7, 1 - 1e-7)
    ids = tf.cast(target, tf.int64)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ids, tf.math.log(probabilities)))


def _clipped_probabilities(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    return _logits_as_probabilities(tf.nn.softmax(outputs), target)


def _masked_by_hand(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    """Set the losses of class 0 to zero, but still divide by the number of all samples."""
    losses_ = tf.nn.sparse_softmax_cross_entropy_with_logits(target, outputs)
    return tf.reduce_mean(tf.where(tf.equal(target, 0), tf.zeros_like(losses_), losses_))


def _over_samples(loss: Loss, outputs: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
    """Take the softmax over the samples; this needs as many samples as classes."""
    return loss(tf.transpose(outputs), *args, **kwargs)


# Optimizers, schedules and clipping.


def _epsilon_hat(update: Update, adam: Adam, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    """Add epsilon before the bias correction of the second moment, as Keras's Adam does."""
    root = tf.cast(tf.sqrt(adam._correction(adam.beta_2)), variable.dtype)
    with mock.patch.object(adam, "epsilon", adam.epsilon / root):
        update(adam, gradient, variable, rate)


@on_device_of_variable
def _rate_in_velocity(sgd: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    """Multiply the rate into the velocity: v = momentum v - rate g; p = p + v."""
    velocity = sgd.momentums[sgd._get_variable_index(variable)]
    velocity.assign(velocity.value * sgd.momentum - gradient * tf.cast(rate, variable.dtype))
    variable.assign_add(velocity.value)


def _biases_do_not_decay(update: Update, sgd: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    with mock.patch.object(sgd, "decay", sgd.decay if len(variable.shape) > 1 else 0.0):
        update(sgd, gradient, variable, rate)


def _first_is_frozen(update: Update, sgd: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    if sgd._get_variable_index(variable):
        update(sgd, gradient, variable, rate)


def _one_step_early(call: Callable, schedule: StepLR, step: tf.Tensor) -> tf.Tensor:
    return call(schedule, step + 1)


def _powers_in_float32(adam: Adam, beta: float) -> tf.Tensor:
    power = tf.pow(tf.constant(beta, tf.float32), tf.cast(adam.iterations.value + 1, tf.float32))
    return tf.cast(1 - power, tf.float64)


def _rate_in_float32(make: Callable, sgd: SGD, rate: float, *args: Any, **kwargs: Any) -> None:
    make(sgd, float(np.float32(rate)), *args, **kwargs)


def _norm_of_each(clip: Callable, gradients: list[tf.Tensor], norm: float) -> list[tf.Tensor]:
    """Clip each gradient by its own norm, as Keras's clipnorm does."""
    return [clipped for gradient in gradients for clipped in clip([gradient], norm)]


def _without_epsilon(gradients: list[tf.Tensor], norm: float) -> list[tf.Tensor]:
    return tf.clip_by_global_norm(list(gradients), norm)[0]


def _each_replicas_own(optimizer: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Clip the gradients of each replica separately, before they are summed."""
    norm = optimizer.global_clipnorm
    return optimizers.clip_by_global_norm(gradients, norm) if norm else gradients


FAULTS: dict[str, Patches] = {
    "sampler.epoch": wrapped(all_reduce, "distributed_sampler", _same_epoch),
    "sampler.order": wrapped(all_reduce, "distributed_sampler", _contiguous),
    "sampler.offset": wrapped(batches, "order", _next_batch),
    "sampler.drop_last": wrapped(batches, "order", _last_dropped),
    "input.scale": _inputs(lambda x: x / 255),
    "input.layout": _inputs(lambda x: tf.transpose(x, (0, 2, 1, 3))),
    "target.shift": wrapped(data, "tensors", _shifted_target),
    "loss.sum": replaced(losses, "_reduce", lambda values, reduction: tf.reduce_sum(values)),
    "loss.kind": replaced(losses, "mse", _absolute),
    "mse.reduction": replaced(losses, "mse", _sum_of_each_sample),
    "mse.broadcast": wrapped(losses, "mse", _broadcast),
    "cross_entropy.logits": replaced(losses, "cross_entropy", _logits_as_probabilities),
    "cross_entropy.double_softmax": wrapped(losses, "cross_entropy", _softmax_before),
    "cross_entropy.ignored": replaced(losses, "cross_entropy", _masked_by_hand),
    "cross_entropy.class_axis": wrapped(losses, "cross_entropy", _over_samples),
    "probability.clipping": replaced(losses, "cross_entropy", _clipped_probabilities),
    "sgd.learning_rate": constant(SGD, "learning_rate", 0.01),
    "sgd.momentum": constant(SGD, "momentum", 0.8),
    "sgd.momentum_form": replaced(SGD, "update_step", _rate_in_velocity),
    "sgd.nesterov": constant(SGD, "nesterov", False),
    "schedule.offset": wrapped(StepLR, "__call__", _one_step_early),
    "weight_decay.form": replaced(AdamW, "_decayed", Adam._decayed),
    "weight_decay.excludes_bias": wrapped(SGD, "update_step", _biases_do_not_decay),
    "adamw.weight_decay": constant(AdamW, "decay", 0.004),
    "adam.epsilon": constant(Adam, "epsilon", 1e-7),
    "adam.epsilon_placement": wrapped(Adam, "update_step", _epsilon_hat),
    "adam.beta2": constant(Adam, "beta_2", 0.99),
    "adam.beta_precision": replaced(Adam, "_correction", _powers_in_float32),
    "adam.bias_correction": replaced(Adam, "_correction", lambda adam, beta: 1.0),
    "constant.precision": wrapped(SGD, "__init__", _rate_in_float32),
    "update.frozen": wrapped(SGD, "update_step", _first_is_frozen),
    "clip.scope": wrapped(optimizers, "clip_by_global_norm", _norm_of_each),
    "clip.epsilon": replaced(optimizers, "clip_by_global_norm", _without_epsilon),
    "clip.before_reduction": together(
        replaced(PyTorchClipping, "_clip_gradients", _each_replicas_own),
        replaced(PyTorchClipping, "_all_reduce_sum_gradients", keras.optimizers.SGD._all_reduce_sum_gradients),
    ),
}
