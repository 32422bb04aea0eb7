"""What is updated and how, in Keras: trainable, what optimizers wrap and average, constraints, schedules."""

from functools import partial
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from nets_keras import Mlp, mlp

__all__ = ["mlp"]


def body_frozen() -> keras.Model:
    model = Mlp()
    model.body.trainable = False
    return model


def model_frozen() -> keras.Model:
    model = Mlp()
    model.trainable = False
    return model


def head_within_frozen() -> keras.Model:
    """The head is switched on again, but not the model that owns it."""
    model = Mlp()
    model.trainable = False
    model.head.trainable = True
    return model


def still_frozen() -> keras.Model:
    """An attribute that is set to what it is reaches no layer."""
    model = Mlp()
    model.body.trainable = False
    model.trainable = True
    return model


def thawed() -> keras.Model:
    """What was frozen is switched on again with the whole model."""
    model = Mlp()
    model.body.trainable = False
    model.trainable = False
    model.trainable = True
    return model


def layers_frozen() -> keras.Model:
    """As in the guide on fine-tuning: all layers, then the last one on again."""
    model = Mlp()
    for layer in model.layers:
        layer.trainable = False
    model.layers[-1].trainable = True
    return model


class LateFreezing(Mlp):
    """The body is frozen when it is built."""

    def build(self, shape: Any) -> None:
        self.body.build(shape)
        self.head.build((None, 16))
        self.body.trainable = False
        self.built = True


class KernelFrozen(Mlp):
    def build(self, shape: Any) -> None:
        self.body.build(shape)
        self.head.build((None, 16))
        self.body.kernel.trainable = False
        self.built = True


class Nested(keras.Model):
    """A frozen model within a model."""

    def __init__(self):
        super().__init__()
        self.body = keras.Sequential([keras.layers.Dense(16, activation="tanh")])
        self.head = keras.layers.Dense(4)
        self.body.trainable = False

    def call(self, x: Any) -> Any:
        return self.head(self.body(x))


class Stopped(Mlp):
    """No gradient reaches the body, which counts as trained."""

    def call(self, x: Any) -> Any:
        return self.head(ops.stop_gradient(self.body(x)))


class Normed(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(16)
        self.norm = keras.layers.BatchNormalization()
        self.head = keras.layers.Dense(4)
        self.norm.trainable = False

    def call(self, x: Any, training: bool = False) -> Any:
        return self.head(ops.tanh(self.norm(self.body(x), training=training)))


def rows_limited() -> keras.Model:
    return Mlp(kernel_constraint=keras.constraints.MaxNorm(0.5, axis=0))


def positive() -> keras.Model:
    return Mlp(head={"kernel_constraint": "non_neg"})


class Unscaled(Mlp):
    """A train_step from before optimizers scaled losses."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Scaled(Mlp):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            scaled = self.optimizer.scale_loss(loss)
        self.optimizer.apply(tape.gradient(scaled, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def scaled() -> keras.Model:
    return Scaled()


class Halving(Mlp):
    """Halves what the body is trained by."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = [each / (2 if place < 2 else 1) for place, each in enumerate(gradients)]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def by_hand(model, optimizer, batch):
    """Never finalizes what the optimizer averages."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(batch["target"] - model(batch["x"], training=True)))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def finalized(model, optimizer, batch):
    by_hand(model, optimizer, batch)
    optimizer.finalize_variable_values(model.trainable_variables)


SGD, Adam = keras.optimizers.SGD, keras.optimizers.Adam


sgd = partial(SGD, 0.25)


def halved():
    return SGD(keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.5))


def quartered():
    return SGD(keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.25))


momentum = partial(SGD, 0.25, momentum=0.5)
scaling = partial(SGD, 0.25, loss_scale_factor=128.0)


def dynamic():
    return keras.optimizers.LossScaleOptimizer(SGD(0.25))


def dynamic_often():
    """The scale is doubled after every second step."""
    return keras.optimizers.LossScaleOptimizer(SGD(0.25), initial_scale=8.0, dynamic_growth_steps=2)


def adam():
    """With factors that float32, in which TensorFlow keeps them, holds exactly."""
    return Adam(0.0625, 0.875, 0.96875, epsilon=1e-30)


adam_scaling = partial(Adam, 0.0625, 0.875, 0.96875, epsilon=1e-30, loss_scale_factor=128.0)


def adam_dynamic():
    return keras.optimizers.LossScaleOptimizer(adam())


adam_usual = partial(Adam, 0.0625, 0.875, 0.96875, epsilon=1e-3)


def averaging():
    """The weights are replaced by their average at the end of fit."""
    return SGD(0.25, use_ema=True, ema_momentum=0.75)


averaging_each = partial(SGD, 0.25, use_ema=True, ema_momentum=0.75, ema_overwrite_frequency=1)
accumulating = partial(SGD, 0.25, gradient_accumulation_steps=2)
norms_clipped = partial(SGD, 0.25, clipnorm=0.125)
norm_clipped = partial(SGD, 0.25, global_clipnorm=0.125)
decayed = partial(SGD, 0.25, weight_decay=0.125)
decayed_momentum = partial(SGD, 0.125, weight_decay=0.125, momentum=0.5)
decoupled = partial(keras.optimizers.AdamW, 0.0625, 0.25, 0.875, 0.96875, epsilon=1e-30)


def decoupled_kernels():
    optimizer = decoupled()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


nesterov = partial(SGD, 0.125, momentum=0.5, nesterov=True)


def halving():
    return SGD(keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.5, staircase=True))


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, first: float):
        self.first = first

    def __call__(self, step: Any) -> Any:
        return 0.25 * ops.minimum(1.0, (ops.cast(step, keras.config.floatx()) + self.first) / 4.0)


def warming_up():
    return SGD(Warmup(1.0))


def warming_up_from_zero():
    return SGD(Warmup(0.0))


rms = partial(keras.optimizers.RMSprop, 0.0625, rho=0.75, epsilon=1e-30)
rms_default = partial(keras.optimizers.RMSprop, 0.0625, epsilon=1e-30)
adagrad = partial(keras.optimizers.Adagrad, 0.125, initial_accumulator_value=0.125, epsilon=1e-30)
adagrad_default = partial(keras.optimizers.Adagrad, 0.125, epsilon=1e-30)
