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
from parity.selftest.mutate import Patches, constant, replaced, together

Tensors = Callable[..., tuple[tuple[tf.Tensor, ...], tf.Tensor]]
Order = Callable[[schema.Case, int, int, int], Indices]
Sampler = Callable[[int, int, int, int], list[list[int]]]
Loss = Callable[..., tf.Tensor]
Update = Callable[[Any, tf.Tensor, tf.Variable, tf.Tensor], None]


# Data.


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


# Losses.


def _summed(reduce: Loss) -> Loss:
    return lambda values, reduction: tf.reduce_sum(values)


def _sum_of_each_sample(loss: Loss) -> Loss:
    def changed(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
        return tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(outputs, target), axis=-1))

    return changed


def _broadcast(loss: Loss) -> Loss:
    """Compare outputs (N, 1) with a target (N,), which broadcasts to (N, N)."""
    return lambda outputs, target, reduction="mean": loss(outputs, tf.squeeze(target, axis=-1), reduction)


def _absolute(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": tf.reduce_mean(tf.abs(outputs - target))


def _softmax_before(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(tf.nn.softmax(outputs), target, reduction)


def _of_probabilities(outputs: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Compute Keras's cross entropy with from_logits=False."""
    probabilities = tf.clip_by_value(outputs, 1e-7, 1 - 1e-7)
    ids = tf.cast(target, tf.int64)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ids, tf.math.log(probabilities)))


def _logits_as_probabilities(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": _of_probabilities(outputs, target)


def _clipped_probabilities(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": _of_probabilities(tf.nn.softmax(outputs), target)


def _masked_by_hand(loss: Loss) -> Loss:
    """Set the losses of class 0 to zero, but still divide by the number of all samples."""

    def changed(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
        losses_ = tf.nn.sparse_softmax_cross_entropy_with_logits(target, outputs)
        return tf.reduce_mean(tf.where(tf.equal(target, 0), tf.zeros_like(losses_), losses_))

    return changed


def _over_samples(loss: Loss) -> Loss:
    """Take the softmax over the samples; this needs as many samples as classes."""
    return lambda outputs, target, reduction="mean": loss(tf.transpose(outputs), target, reduction)


# Optimizers, schedules and clipping.


def _epsilon_hat(update: Update) -> Update:
    """Add epsilon before the bias correction of the second moment, as Keras's Adam does."""

    def changed(self: Adam, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
        root = tf.cast(tf.sqrt(self._correction(self.beta_2)), variable.dtype)
        with mock.patch.object(self, "epsilon", self.epsilon / root):
            update(self, gradient, variable, rate)

    return changed


def _rate_in_velocity(update: Update) -> Update:
    """Multiply the rate into the velocity: v = momentum v - rate g; p = p + v."""

    @on_device_of_variable
    def changed(self: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
        velocity = self.momentums[self._get_variable_index(variable)]
        velocity.assign(velocity.value * self.momentum - gradient * tf.cast(rate, variable.dtype))
        variable.assign_add(velocity.value)

    return changed


def _biases_do_not_decay(update: Update) -> Update:
    def changed(self: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
        with mock.patch.object(self, "decay", self.decay if len(variable.shape) > 1 else 0.0):
            update(self, gradient, variable, rate)

    return changed


def _first_is_frozen(update: Update) -> Update:
    def changed(self: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
        if self._get_variable_index(variable):
            update(self, gradient, variable, rate)

    return changed


def _one_step_early(call: Callable) -> Callable:
    return lambda self, step: call(self, step + 1)


def _powers_in_float32(correction: Callable) -> Callable:
    def changed(self: Adam, beta: float) -> tf.Tensor:
        power = tf.pow(tf.constant(beta, tf.float32), tf.cast(self.iterations.value + 1, tf.float32))
        return tf.cast(1 - power, tf.float64)

    return changed


def _rate_in_float32(make: Callable) -> Callable:
    return lambda self, rate, *args, **kwargs: make(self, float(np.float32(rate)), *args, **kwargs)


def _norm_of_each(clip: Callable) -> Callable:
    """Clip each gradient by its own norm, as Keras's clipnorm does."""
    return lambda gradients, norm: [clipped for gradient in gradients for clipped in clip([gradient], norm)]


def _without_epsilon(clip: Callable) -> Callable:
    return lambda gradients, norm: tf.clip_by_global_norm(list(gradients), norm)[0]


def _each_replicas_own(clip: Callable) -> Callable:
    """Clip the gradients of each replica separately, before they are summed."""

    def changed(self: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        return optimizers.clip_by_global_norm(gradients, self.global_clipnorm) if self.global_clipnorm else gradients

    return changed


FAULTS: dict[str, Patches] = {
    "sampler.epoch": replaced(all_reduce, "distributed_sampler", _same_epoch),
    "sampler.order": replaced(all_reduce, "distributed_sampler", _contiguous),
    "sampler.offset": replaced(batches, "order", _next_batch),
    "sampler.drop_last": replaced(batches, "order", _last_dropped),
    "input.scale": _inputs(lambda x: x / 255),
    "input.layout": _inputs(lambda x: tf.transpose(x, (0, 2, 1, 3))),
    "target.shift": replaced(data, "tensors", _shifted_target),
    "loss.sum": replaced(losses, "_reduce", _summed),
    "loss.kind": replaced(losses, "mse", _absolute),
    "mse.reduction": replaced(losses, "mse", _sum_of_each_sample),
    "mse.broadcast": replaced(losses, "mse", _broadcast),
    "cross_entropy.logits": replaced(losses, "cross_entropy", _logits_as_probabilities),
    "cross_entropy.double_softmax": replaced(losses, "cross_entropy", _softmax_before),
    "cross_entropy.ignored": replaced(losses, "cross_entropy", _masked_by_hand),
    "cross_entropy.class_axis": replaced(losses, "cross_entropy", _over_samples),
    "probability.clipping": replaced(losses, "cross_entropy", _clipped_probabilities),
    "sgd.learning_rate": constant(SGD, "learning_rate", 0.01),
    "sgd.momentum": constant(SGD, "momentum", 0.8),
    "sgd.momentum_form": replaced(SGD, "update_step", _rate_in_velocity),
    "sgd.nesterov": constant(SGD, "nesterov", False),
    "schedule.offset": replaced(StepLR, "__call__", _one_step_early),
    "weight_decay.form": replaced(AdamW, "_decayed", lambda decayed: Adam._decayed),
    "weight_decay.excludes_bias": replaced(SGD, "update_step", _biases_do_not_decay),
    "adamw.weight_decay": constant(AdamW, "decay", 0.004),
    "adam.epsilon": constant(Adam, "epsilon", 1e-7),
    "adam.epsilon_placement": replaced(Adam, "update_step", _epsilon_hat),
    "adam.beta2": constant(Adam, "beta_2", 0.99),
    "adam.beta_precision": replaced(Adam, "_correction", _powers_in_float32),
    "adam.bias_correction": replaced(Adam, "_correction", lambda correction: lambda self, beta: 1.0),
    "constant.precision": replaced(SGD, "__init__", _rate_in_float32),
    "update.frozen": replaced(SGD, "update_step", _first_is_frozen),
    "clip.scope": replaced(optimizers, "clip_by_global_norm", _norm_of_each),
    "clip.epsilon": replaced(optimizers, "clip_by_global_norm", _without_epsilon),
    "clip.before_reduction": together(
        replaced(PyTorchClipping, "_clip_gradients", _each_replicas_own),
        replaced(
            PyTorchClipping, "_all_reduce_sum_gradients", lambda _: keras.optimizers.SGD._all_reduce_sum_gradients
        ),
    ),
}
