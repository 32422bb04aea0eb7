"""Losses and optimizers of the soundness table in Keras: `keras_training:momentum` is that of optimizers_table.py."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from optimizers_table import OPTIMIZERS, at

Tensor = tf.Tensor


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in OPTIMIZERS:
        raise AttributeError(name)
    return functools.partial(make, OPTIMIZERS[name])


def make(config: dict[str, Any]) -> keras.optimizers.Optimizer:
    config = at(config, keras.config.floatx() == "float64")
    clipping = {"clipnorm": config.get("clip_each"), "clipvalue": config.get("clip_value")}
    if config["kind"] == "keras_sgd":
        return keras.optimizers.SGD(Schedule(config), config["momentum"])
    if config["kind"] == "keras_adam":
        return keras.optimizers.Adam(config["rate"], *config["betas"], epsilon=config["eps"])
    return Optimizer(config, **clipping)


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, config: dict[str, Any]):
        self.config = config

    def __call__(self, step: Any) -> Any:
        times = tf.cast(tf.convert_to_tensor(step) // self.config["every"], tf.float64)
        return self.config["rate"] * tf.pow(tf.constant(self.config["factor"], tf.float64), times)

    def get_config(self) -> dict[str, Any]:
        return {"config": self.config}


class Optimizer(keras.optimizers.Optimizer):
    """torch's SGD, Adam and AdamW in torch's formulas, by the fields of optimizers_table.py."""

    def __init__(self, config: dict[str, Any], **kwargs):
        super().__init__(Schedule(config) if "every" in config else config["rate"], **kwargs)
        self.config = config

    def build(self, variables: list[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        if self.config["kind"] != "sgd":  # the slots have the names that they have in Keras's own
            self._momentums = [self.add_variable_from_reference(one, "momentum") for one in variables]
            self._velocities = [self.add_variable_from_reference(one, "velocity") for one in variables]
        elif self.config.get("momentum"):
            self.momentums = [self.add_variable_from_reference(one, "momentum") for one in variables]
        self.count = len(variables)

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        if limit := self.config.get("clip"):
            grads = [tf.convert_to_tensor(gradient) for gradient in grads]
            scale = tf.minimum(limit / (tf.linalg.global_norm(grads) + 1e-6), 1.0)
            grads = [gradient * scale for gradient in grads]
        return super().apply(grads, trainable_variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        if self.count - place <= self.config.get("frozen", 0):
            return
        gradient, decay = tf.convert_to_tensor(gradient), self._decay(place)
        rate = tf.cast(learning_rate, variable.dtype)
        if self.config["kind"] == "adamw":
            variable.assign_sub(variable * (rate * decay))
        elif "decay" in self.config:
            gradient = gradient + variable * decay
        if "skipped" in self.config:
            rate *= tf.cast(self.iterations.value != self.config["skipped"], rate.dtype)
        step = self._sgd if self.config["kind"] == "sgd" else self._adam
        variable.assign_sub(step(gradient, place, rate))

    def _decay(self, place: int) -> Any:
        """Of the parameter at this place, now."""
        begun = self.iterations.value >= self.config.get("decay_from", 0)
        decay = self.config.get("decay", 0.0) if self.count - place > self.config.get("excluded", 0) else 0.0
        return tf.cast(begun, keras.config.floatx()) * decay

    def _sgd(self, gradient: Any, place: int, rate: Any) -> Any:
        momentum = self.config.get("momentum")
        if not momentum:
            return gradient * rate
        velocity = self.momentums[place]
        velocity.assign(velocity.value * momentum + gradient)
        return (gradient + velocity.value * momentum if self.config.get("nesterov") else velocity.value) * rate

    def _adam(self, gradient: Any, place: int, rate: Any) -> Any:
        (beta1, beta2), mean, square = self.config["betas"], self._momentums[place], self._velocities[place]
        mean.assign(mean.value * beta1 + gradient * (1 - beta1))
        square.assign(square.value * beta2 + gradient * gradient * (1 - beta2))
        steps = tf.cast(self.iterations.value + 1, tf.float64)
        first = 1 - tf.pow(tf.constant(beta1, tf.float64), steps)
        second = tf.sqrt(1 - tf.pow(tf.constant(beta2, tf.float64), steps))
        scaled = tf.cast(tf.cast(rate, tf.float64) / first, mean.dtype)
        return scaled * mean.value / (tf.sqrt(square.value) / tf.cast(second, mean.dtype) + self.config["eps"])


def mean_square(outputs: Tensor, target: Tensor) -> Tensor:
    return tf.reduce_mean((outputs - target) ** 2)


def per_sample(outputs: Tensor, target: Tensor) -> Tensor:
    return tf.reduce_mean(tf.reduce_sum((outputs - target) ** 2, -1))


def summed(outputs: Tensor, target: Tensor) -> Tensor:
    return tf.reduce_sum((outputs - target) ** 2)


def shifted(outputs: Tensor, target: Tensor) -> Tensor:
    """One more; the gradients are the same."""
    return mean_square(outputs, target) + 1


def halved(outputs: Tensor, target: Tensor) -> Tensor:
    return mean_square(outputs, target) / 2


def scaled(outputs: Tensor, target: Tensor) -> Tensor:
    return mean_square(outputs, target) * (1 + 1e-5)


def without_last(outputs: Tensor, target: Tensor) -> Tensor:
    """The last sample is forgotten."""
    return mean_square(outputs[:-1], target[:-1])


def regularized(outputs: Tensor, target: Tensor) -> Tensor:
    return mean_square(outputs, target) + 1e-4 * tf.reduce_sum(outputs**2)


def absolute(outputs: Tensor, target: Tensor) -> Tensor:
    return tf.reduce_mean(tf.abs(outputs - target))


def huber(outputs: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    error = tf.abs(outputs - target)
    return tf.reduce_mean(tf.where(error < delta, error**2 / 2, delta * (error - delta / 2)))


def huber_wide(outputs: Tensor, target: Tensor) -> Tensor:
    return huber(outputs, target, 1.5)


def _picked(outputs: Tensor, target: Tensor) -> Tensor:
    return tf.gather(tf.nn.log_softmax(outputs), tf.cast(target, tf.int32), batch_dims=1)


def logits(outputs: Tensor, target: Tensor) -> Tensor:
    return -tf.reduce_mean(_picked(outputs, target))


def probabilities(outputs: Tensor, target: Tensor) -> Tensor:
    """A softmax too many."""
    return logits(tf.nn.softmax(outputs), target)


def by_one_hot(outputs: Tensor, target: Tensor) -> Tensor:
    wanted = tf.one_hot(tf.cast(target, tf.int32), outputs.shape[-1], dtype=outputs.dtype)
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(wanted, outputs))


def smoothed(outputs: Tensor, target: Tensor, by: float = 0.1) -> Tensor:
    return (1 - by) * logits(outputs, target) - by * tf.reduce_mean(tf.nn.log_softmax(outputs))


def smoothed_others(outputs: Tensor, target: Tensor) -> Tensor:
    """The smoothing goes to the other classes alone."""
    count = outputs.shape[-1]
    return smoothed(outputs, target, 0.1 * count / (count - 1))


def weighted(outputs: Tensor, target: Tensor) -> Tensor:
    weights = tf.cast(target + 1, outputs.dtype)
    return -tf.reduce_sum(_picked(outputs, target) * weights) / tf.reduce_sum(weights)


def weighted_mean(outputs: Tensor, target: Tensor) -> Tensor:
    return -tf.reduce_mean(_picked(outputs, target) * tf.cast(target + 1, outputs.dtype))


def ignoring(outputs: Tensor, target: Tensor) -> Tensor:
    counts = tf.cast(target != 0, outputs.dtype)
    return -tf.reduce_sum(_picked(outputs, target) * counts) / tf.reduce_sum(counts)


def ignoring_mean(outputs: Tensor, target: Tensor) -> Tensor:
    return -tf.reduce_mean(_picked(outputs, target) * tf.cast(target != 0, outputs.dtype))


def binary(outputs: Tensor, target: Tensor) -> Tensor:
    wanted = tf.cast(target > 0, outputs.dtype)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(wanted, outputs))


def binary_clipped(outputs: Tensor, target: Tensor) -> Tensor:
    """Of probabilities, kept from their ends as keras.losses does."""
    wanted, found = tf.cast(target > 0, outputs.dtype), tf.clip_by_value(tf.sigmoid(outputs), 1e-7, 1 - 1e-7)
    return -tf.reduce_mean(wanted * tf.math.log(found) + (1 - wanted) * tf.math.log(1 - found))


def infinite(outputs: Tensor, target: Tensor) -> Tensor:
    return mean_square(outputs, target) + tf.math.log(tf.zeros((), outputs.dtype))


def nan(outputs: Tensor, target: Tensor) -> Tensor:
    return mean_square(outputs, target) * tf.sqrt(tf.reduce_min(tf.stop_gradient(outputs)) * 0 - 1)


def nan_doubled(outputs: Tensor, target: Tensor) -> Tensor:
    return nan(outputs * 2, target)
