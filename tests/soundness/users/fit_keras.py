"""Models whose training is overridden, and steps of one's own."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from nets_keras import Mlp, eager, mlp

__all__ = ["mlp"]


class Stepping(Mlp):
    """The train_step of Keras's guide, in parts that the classes below change."""

    def loss_of(self, x: Any, y: Any) -> Any:
        return self.compute_loss(x=x, y=y, y_pred=self(x, training=True))

    def change(self, gradients: list[Any]) -> list[Any]:
        return gradients

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(self.change(gradients), self.trainable_variables)
        return {"loss": loss}


class Halved(Stepping):
    def loss_of(self, x: Any, y: Any) -> Any:
        return super().loss_of(x, y) / 2  # for an accumulation that was taken out again


class Tracked(Mlp):
    """The guide's second example: a loss and metrics of one's own."""

    def __init__(self):
        super().__init__()
        self.tracker = keras.metrics.Mean(name="loss")
        self.error = keras.metrics.MeanAbsoluteError(name="mae")

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = ops.mean(keras.losses.mean_squared_error(y, y_pred))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        self.error.update_state(y, y_pred)
        return {"loss": self.tracker.result(), "mae": self.error.result()}

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.error]


class HeadAlone(Mlp):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        variables = self.head.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class Clipped(Stepping):
    def change(self, gradients: list[Any]) -> list[Any]:
        return tf.clip_by_global_norm(gradients, 0.25)[0]


class ClippedEach(Stepping):
    def change(self, gradients: list[Any]) -> list[Any]:
        return [tf.clip_by_norm(gradient, 0.25) for gradient in gradients]


class ClippedValues(Stepping):
    def change(self, gradients: list[Any]) -> list[Any]:
        return [ops.clip(gradient, -0.0625, 0.0625) for gradient in gradients]


class Twice(Stepping):
    def train_step(self, data: Any) -> dict[str, Any]:
        super().train_step(data)
        return super().train_step(data)


class Penalized(Stepping):
    def loss_of(self, x: Any, y: Any) -> Any:
        squares = [ops.sum(ops.square(variable)) for variable in self.trainable_variables]
        return super().loss_of(x, y) + 0.0625 * sum(squares)


class Smoothed(Stepping):
    def loss_of(self, x: Any, y: Any) -> Any:
        logits = self(x, training=True)
        chances = ops.one_hot(y, 4, dtype=logits.dtype) * 0.9 + 0.1 / 4
        return ops.mean(keras.losses.categorical_crossentropy(chances, logits, from_logits=True))


class Teacher(keras.Model):
    """A mean teacher: what is used is the average of the student."""

    def __init__(self, early: bool = False, alike: bool = False):
        super().__init__()
        self.student, self.teacher = Mlp(), Mlp()
        self.teacher.trainable = alike
        self.early = early

    def build(self, shape: Any) -> None:
        self.student(keras.KerasTensor(shape))
        self.teacher(keras.KerasTensor(shape))
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:
        return self.student(x) if training else self.teacher(x)

    def average(self) -> None:
        for average, variable in zip(self.teacher.variables, self.student.variables, strict=True):
            average.assign(0.75 * average + 0.25 * variable)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        if self.early:
            self.average()
        with tf.GradientTape() as tape:
            y_pred = self.student(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            loss += 0.5 * ops.mean(ops.square(y_pred - self.teacher(x, training=False)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        if not self.early:
            self.average()
        return {"loss": loss}


class SharpnessAware(Mlp):
    def __init__(self, restored: bool = True):
        super().__init__()
        self.restored = restored

    def gradients(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        loss, gradients = self.gradients(x, y)
        norm = tf.linalg.global_norm(gradients)
        moves = [gradient * (0.25 / norm) for gradient in gradients]
        for variable, move in zip(self.trainable_variables, moves, strict=True):
            variable.assign_add(move)
        gradients = self.gradients(x, y)[1]
        for variable, move in zip(self.trainable_variables, moves, strict=True) if self.restored else ():
            variable.assign_sub(move)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class GradientPenalty(Stepping):
    def loss_of(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y_pred = self(x, training=True)
        lengths = tf.norm(tape.gradient(y_pred, x), axis=1)
        return self.compute_loss(x=x, y=y, y_pred=y_pred) + ops.mean(ops.square(lengths - 1))


class MicroBatches(Mlp):
    """Two halves of the batch, one after the other."""

    def __init__(self, averaged: bool = True):
        super().__init__()
        self.share = 0.5 if averaged else 1.0

    def train_step(self, data: Any) -> dict[str, Any]:
        total = [tf.zeros(variable.shape, variable.dtype) for variable in self.trainable_variables]
        for x, y in zip(*(tf.split(part, 2) for part in data), strict=True):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True)) * self.share
            gradients = tape.gradient(loss, self.trainable_variables)
            total = [one + gradient for one, gradient in zip(total, gradients, strict=True)]
        self.optimizer.apply(total, self.trainable_variables)
        return {"loss": loss}


class Adversarial(Stepping):
    def __init__(self, sign: float = 1.0):
        super().__init__()
        self.sign = sign

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        moved = x + self.sign * 0.125 * ops.sign(tape.gradient(loss, x))
        return super().train_step((moved, y))


class Flipped(Stepping):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        return super().train_step((ops.concatenate([x, ops.flip(x, 1)]), ops.concatenate([y, y])))


class Entropy(Mlp):
    """compute_loss, which fit calls for every batch, has another term."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        chances = ops.softmax(y_pred)
        return loss + 0.5 * ops.mean(ops.sum(chances * ops.log(chances), -1))


class OwnLoss(Mlp):
    """compute_loss is the mean square itself, and what compile was given is not asked."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        return ops.mean(ops.square(y - y_pred))


class Compiling(Mlp):
    """compile puts a clipping around whatever optimizer it is given."""

    def compile(self, optimizer: Any = "rmsprop", **rest: Any) -> None:
        optimizer.global_clipnorm = 0.25
        super().compile(optimizer=optimizer, **rest)


class Bootstrapped(Stepping):
    def __init__(self, stopped: bool = True):
        super().__init__()
        self.stopped = stopped

    def loss_of(self, x: Any, y: Any) -> Any:
        y_pred = self(x, training=True)
        ahead = ops.roll(y_pred, -1, 0)
        return self.compute_loss(y=y + 0.5 * (ops.stop_gradient(ahead) if self.stopped else ahead), y_pred=y_pred)


class TwoRates(Mlp):
    """An optimizer of its own for the head."""

    def __init__(self, rate: float = 0.5):
        super().__init__()
        self.second = keras.optimizers.SGD(rate)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        for optimizer, layer in ((self.optimizer, self.body), (self.second, self.head)):
            optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return {"loss": loss}


class Normed(keras.Model):
    """Centred by the batch in training, and by a constant outside of it."""

    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(16)
        self.head = keras.layers.Dense(4)

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.body(x)
        return self.head(ops.tanh(hidden - ops.mean(hidden, 0) if training else hidden - 0.125))


class NormedForgotten(Normed):
    """The train_step calls the model as in inference."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Alternating(Stepping):
    """The body is trained in every second step."""

    def train_step(self, data: Any) -> dict[str, Any]:
        logs = super().train_step(data)
        self.body.trainable = not self.body.trainable
        return logs


def alternating(is_eager: bool = False) -> keras.Model:
    return (eager(Alternating) if is_eager else Alternating)()


class Relaxed(Mlp):
    """The penalty is halved after every step."""

    def __init__(self):
        super().__init__(head={"kernel_regularizer": keras.regularizers.L2(0.125)})

    def train_step(self, data: Any) -> dict[str, Any]:
        logs = super().train_step(data)
        self.head.kernel_regularizer.l2 /= 2
        return logs


def relaxed(is_eager: bool = False) -> keras.Model:
    return (eager(Relaxed) if is_eager else Relaxed)()


class EagerlyDoubled(Mlp):
    """Doubles in training, but not in a graph."""

    def call(self, x: Any, training: bool = False) -> Any:
        return super().call(x) * (2 if training and tf.executing_eagerly() else 1)


def eagerly_doubled(is_eager: bool = False) -> keras.Model:
    return (eager(EagerlyDoubled) if is_eager else EagerlyDoubled)()


class WeightsClipped(Mlp):
    """What fit calls for every batch clips the weights after the step, as in WGAN."""

    def make_train_function(self, force: bool = False) -> None:
        super().make_train_function(force)
        step = self.train_function

        def clipping(iterator: Any) -> Any:
            logs = step(iterator)
            for variable in self.trainable_variables:
                variable.assign(ops.clip(variable, -0.125, 0.125))
            return logs

        self.train_function = clipping


class Doubling(Mlp):
    """fit doubles its inputs, predict does not."""

    def fit(self, x: Any, y: Any, **kwargs: Any) -> Any:
        return super().fit(2 * x, y, **kwargs)


def by_hand(model, optimizer, batch, training=True):
    with tf.GradientTape() as tape:
        loss = keras.losses.MeanSquaredError()(batch["target"], model(batch["x"], training=training))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def by_hand_in_inference(model, optimizer, batch):
    by_hand(model, optimizer, batch, training=False)


@tf.function
def compiled(model, optimizer, batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(batch["target"] - model(batch["x"], training=True)))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def on_batch(model, optimizer, batch):
    if not model.compiled:
        model.compile(optimizer, "mse")
    model.train_on_batch(batch["x"], batch["target"])


def summed(model, optimizer, batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(batch["target"] - model(batch["x"], training=True)))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def compiled_builder() -> keras.Model:
    """A model that was compiled by its builder, with what the pair says as well."""
    x = keras.Input((8,))
    hidden = keras.layers.Dense(16, activation="tanh")(x)
    model = keras.Model(x, keras.layers.Dense(4)(hidden))
    model.compile(keras.optimizers.SGD(0.25), "mse")
    return model


def logits(y_true: Any, y_pred: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.25)
