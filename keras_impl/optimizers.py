"""The optimizers and the learning-rate schedule, with the formulas of torch.optim.

Keras's formulas differ: its Adam adds epsilon before the bias correction of the second moment ("epsilon hat", Kingma
and Ba 2015, end of section 2), its SGD multiplies the learning rate into the momentum, and its clipping leaves out
PyTorch's 1e-6. Constants are made by `tf.constant(x, dtype)`, which rounds a Python float once; `tf.cast` would round
it to float32 first.
"""

import functools
from collections.abc import Callable, Iterable

import keras
import tensorflow as tf

from parity.config import schema


def build(case: schema.Case) -> keras.optimizers.Optimizer:
    """Build the optimizer of a case, with clipping and learning-rate schedule."""
    config = case.optimizer
    rate = config.learning_rate
    if case.schedule is not None:
        rate = StepLR(rate, case.schedule.every, case.schedule.factor)
    match config:
        case schema.SGD():
            return SGD(
                rate, config.momentum, config.nesterov, decay=config.weight_decay, global_clipnorm=case.clip_norm
            )
        case schema.Adam():
            kind = AdamW if isinstance(config, schema.AdamW) else Adam
            betas = config.beta1, config.beta2
            return kind(rate, *betas, config.epsilon, decay=config.weight_decay, global_clipnorm=case.clip_norm)


def clip_by_global_norm(gradients: Iterable[tf.Tensor], max_norm: float) -> list[tf.Tensor]:
    """Return the gradients scaled so that their global L2 norm is at most `max_norm`.

    Formula of torch.nn.utils.clip_grad_norm_: the scale is min(1, max_norm / (norm + 1e-6)).
    """
    gradients = [_dense(gradient) for gradient in gradients]
    scale = tf.minimum(max_norm / (tf.linalg.global_norm(gradients) + 1e-6), 1.0)
    return [_scaled(gradient, scale) for gradient in gradients]


def on_device_of_variable(update_step: Callable) -> Callable:
    """Wrap an `update_step` so that it computes on the variable's device; TensorFlow would do so on device 0."""

    @functools.wraps(update_step)
    def placed(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        with tf.device(variable.device):
            update_step(self, gradient, variable, learning_rate)

    return placed


class PyTorchClipping:
    """Mix-in that makes `global_clipnorm` of a Keras optimizer clip as PyTorch does.

    PyTorch clips after the reduction, and by a slightly different formula. Under a tf.distribute strategy a Keras
    optimizer clips the gradients of each replica separately, and only then sums them over the replicas. Set
    `gradients_are_reduced` if the training loop has summed them already.
    """

    gradients_are_reduced = False

    def _clip_gradients(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        return gradients  # clipped after the reduction, below

    def _all_reduce_sum_gradients(self, pairs: list[tuple[tf.Tensor, tf.Variable]]) -> list:
        """Sum the gradients over the replicas, unless they are summed already, then clip them."""
        # With a single replica the reduction changes nothing, but TensorFlow would collect all gradients on device 0.
        if tf.distribute.get_strategy().num_replicas_in_sync > 1 and not self.gradients_are_reduced:
            pairs = super()._all_reduce_sum_gradients(pairs)
        if not self.global_clipnorm:
            return pairs
        gradients, variables = zip(*pairs, strict=True)
        return list(zip(clip_by_global_norm(gradients, self.global_clipnorm), variables, strict=True))


@keras.saving.register_keras_serializable("parity")
class SGD(PyTorchClipping, keras.optimizers.SGD):
    """v = momentum v + g; p = p - rate v, or with nesterov p = p - rate (g + momentum v)."""

    def __init__(self, learning_rate=0.01, momentum=0.0, nesterov=False, decay=0.0, **kwargs):
        super().__init__(learning_rate, momentum, nesterov, **kwargs)
        self.decay = decay

    @on_device_of_variable
    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        gradient = _dense(gradient)
        if self.decay:
            gradient = gradient + variable * self.decay
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            velocity.assign(velocity.value * self.momentum + gradient)
            gradient = gradient + velocity.value * self.momentum if self.nesterov else velocity.value
        variable.assign_sub(gradient * tf.cast(learning_rate, variable.dtype))

    def get_config(self) -> dict:
        return {**super().get_config(), "decay": self.decay}


@keras.saving.register_keras_serializable("parity")
class Adam(PyTorchClipping, keras.optimizers.Adam):
    """p = p - rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon); weight decay is added to g."""

    def __init__(self, learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8, decay=0.0, **kwargs):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **kwargs)
        self.decay = decay

    @on_device_of_variable
    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        gradient = self._decayed(_dense(gradient), variable, learning_rate)
        mean.assign(mean.value * self.beta_1 + gradient * (1 - self.beta_1))
        square.assign(square.value * self.beta_2 + tf.square(gradient) * (1 - self.beta_2))
        correction1, correction2 = self._correction(self.beta_1), self._correction(self.beta_2)
        rate = tf.cast(tf.cast(learning_rate, tf.float64) / correction1, variable.dtype)
        root = tf.cast(tf.sqrt(correction2), variable.dtype)
        variable.assign_sub(rate * mean.value / (tf.sqrt(square.value) / root + self.epsilon))

    def _decayed(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> tf.Tensor:
        return gradient + variable * self.decay if self.decay else gradient

    def _correction(self, beta: float) -> tf.Tensor:
        """Return 1 - beta^t for the step t that is being made.

        In float64 whatever the precision, as in PyTorch, because the difference cancels at small t.
        """
        step = tf.cast(tf.convert_to_tensor(self.iterations) + 1, tf.float64)
        return 1 - tf.pow(tf.constant(beta, tf.float64), step)

    def get_config(self) -> dict:
        return {**super().get_config(), "decay": self.decay}


@keras.saving.register_keras_serializable("parity")
class AdamW(Adam):
    """Adam with decoupled weight decay: the parameter shrinks by rate * decay, and the gradient is left alone."""

    def _decayed(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> tf.Tensor:
        variable.assign_sub(variable * (tf.cast(learning_rate, variable.dtype) * self.decay))
        return gradient


@keras.saving.register_keras_serializable("parity")
class StepLR(keras.optimizers.schedules.LearningRateSchedule):
    """learning_rate * factor^(step // every), exact in float64; Keras's ExponentialDecay rounds factors to float32."""

    def __init__(self, learning_rate: float, every: int, factor: float):
        self.learning_rate, self.every, self.factor = learning_rate, every, factor

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        times = tf.cast(tf.convert_to_tensor(step) // self.every, tf.float64)
        return self.learning_rate * tf.pow(tf.constant(self.factor, tf.float64), times)

    def get_config(self) -> dict:
        return {"learning_rate": self.learning_rate, "every": self.every, "factor": self.factor}


def _dense(gradient: tf.Tensor) -> tf.Tensor:
    """Return a dense gradient; TensorFlow gives an embedding's as a list of rows (IndexedSlices)."""
    return tf.convert_to_tensor(gradient)


def _scaled(gradient: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Multiply on the device of the gradient."""
    with tf.device(gradient.device):
        return gradient * scale
