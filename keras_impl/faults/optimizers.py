"""Faults of optimizers, schedules and clipping."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from keras_impl import optimizers
from keras_impl.faults.mutate import Patches, constant, replaced, together
from keras_impl.optimizers import SGD, Adam, AdamW, PyTorchClipping, StepLR, on_device_of_variable

KERAS_REDUCTION = keras.optimizers.SGD._all_reduce_sum_gradients
Update = Callable[[Any, tf.Tensor, tf.Variable, tf.Tensor], None]


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
