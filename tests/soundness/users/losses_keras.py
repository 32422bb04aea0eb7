"""What is minimized, in Keras: penalties, weights of samples and classes, masks, and losses of its own kinds."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from nets_keras import Mlp, Tagger, mlp, tagger

__all__ = ["mlp", "tagger"]


class Active(Mlp):
    """call adds a penalty on the hidden values."""

    def call(self, x: Any) -> Any:
        hidden = self.body(x)
        self.add_loss(0.25 * ops.mean(ops.square(hidden)))
        return self.head(hidden)


class ActiveUnseen(Mlp):
    """compute_loss asks the loss alone, so that the penalty of call does nothing."""

    call = Active.call

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        return ops.mean(ops.square(y - y_pred))


class ActiveInTraining(Mlp):
    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.body(x)
        if training:
            self.add_loss(0.25 * ops.mean(ops.square(hidden)))
        return self.head(hidden)


def activity_regularized() -> keras.Model:
    return Mlp(activity_regularizer=keras.regularizers.L2(0.015625))


def squares() -> keras.Model:
    return Mlp(kernel_regularizer=keras.regularizers.L2(0.0625))


def squares_of_bias() -> keras.Model:
    return Mlp(kernel_regularizer=keras.regularizers.L2(0.0625), bias_regularizer=keras.regularizers.L2(0.0625))


def absolutes() -> keras.Model:
    return Mlp(kernel_regularizer="l1")


def absolutes_set() -> keras.Model:
    return Mlp(kernel_regularizer=keras.regularizers.L1(0.0625))


class FrozenSquares(Mlp):
    """The layer with the penalty is not trained."""

    def __init__(self):
        super().__init__(kernel_regularizer=keras.regularizers.L2(0.0625))
        self.body.trainable = False


class Again(Mlp):
    """compute_loss calls the model again. `sign`: of what it is given there."""

    def __init__(self, sign: float = 1.0):
        super().__init__()
        self.sign = sign

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        return ops.mean(ops.square(y - self(self.sign * x, training=training)))


class Encoder(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(8, activation="tanh")

    def call(self, x: Any) -> Any:
        encoded = self.dense(x)
        self.add_loss(ops.mean(ops.square(encoded)))
        return encoded


class Siamese(keras.Model):
    """One encoder, called twice: its penalty is added twice."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        left, right = (self.encoder(part) for part in ops.split(x, 2, 1))
        return self.head(left * right)


def mask_zero() -> keras.Model:
    return Tagger(mask_zero=True)


class MaskLost(Tagger):
    """The last function is none of Keras's layers, and drops the mask."""

    def __init__(self):
        super().__init__(mask_zero=True)

    def call(self, ids: Any) -> Any:
        return super().call(ids) * 1.0


def mask_functional() -> keras.Model:
    ids = keras.Input((5,), dtype="int64", name="ids")
    hidden = keras.layers.Embedding(6, 8, mask_zero=True, name="embedding")(ids)
    hidden = keras.layers.Dense(10, activation="relu", name="body")(hidden)
    return keras.Model(ids, keras.layers.Dense(3, name="head")(hidden))


class MaskByHand(Tagger):
    """compute_loss masks what call was given, and there is no mask of Keras's."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        valid = ops.cast(x != 0, y_pred.dtype)
        return ops.sum(ops.mean(ops.square(y - y_pred), -1) * valid) / ops.sum(valid)


sum_of_all = keras.losses.MeanSquaredError(reduction="sum")
mean_of_all = keras.losses.MeanSquaredError()
mean_by_weight = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
huber = keras.losses.Huber()
huber_wide = keras.losses.Huber(delta=2.0)
ignoring = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
every_word = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
MeanClass = keras.losses.MeanSquaredError


class OfSamples(keras.losses.Loss):
    """One value for each sample."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return ops.sum(ops.square(y_true - y_pred), axis=1)


class Smoothed(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        chances = ops.one_hot(ops.cast(y_true, "int32"), 4, dtype=y_pred.dtype)
        return keras.losses.categorical_crossentropy(chances, y_pred, from_logits=True, label_smoothing=0.25)


def of_samples(y_true: Any, y_pred: Any) -> Any:
    return ops.sum(ops.square(y_true - y_pred), axis=1)


def mean(y_true: Any, y_pred: Any) -> Any:
    return ops.mean(ops.square(y_true - y_pred))


def of_outputs(outputs: Any, target: Any) -> Any:
    return ops.mean(ops.square(outputs - target))


def logits(y_true: Any, y_pred: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def probabilities(y_true: Any, y_pred: Any) -> Any:
    """Takes scores for chances, as where from_logits was forgotten."""
    return keras.losses.sparse_categorical_crossentropy(y_true, ops.softmax(ops.softmax(y_pred)))


def binary(y_true: Any, y_pred: Any) -> Any:
    return keras.losses.binary_crossentropy(ops.sigmoid(y_true), y_pred, from_logits=True)


def binary_of_chances(y_true: Any, y_pred: Any) -> Any:
    return keras.losses.binary_crossentropy(ops.sigmoid(y_true), ops.sigmoid(ops.sigmoid(y_pred)))


def divergence(y_true: Any, y_pred: Any) -> Any:
    return keras.losses.kl_divergence(ops.softmax(y_true), ops.softmax(y_pred))


def divergence_reversed(y_true: Any, y_pred: Any) -> Any:
    return keras.losses.kl_divergence(ops.softmax(y_pred), ops.softmax(y_true))


def single() -> keras.Model:
    return Mlp(outputs=1)


class TwoHeads(keras.Model):
    """compute_loss is of both outputs."""

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.body = keras.layers.Dense(16, activation="tanh")
        self.mean, self.spread = keras.layers.Dense(4, name="mean"), keras.layers.Dense(4, name="spread")
        self.weight = weight

    def call(self, x: Any) -> Any:
        hidden = self.body(x)
        return {"mean": self.mean(hidden), "spread": self.spread(hidden)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        first, second = (ops.mean(ops.square(y - y_pred[name])) for name in ("mean", "spread"))
        return first + self.weight * second


class Likelihood(TwoHeads):
    def __init__(self, doubled: bool = False):
        super().__init__()
        self.factor = 2.0 if doubled else 1.0

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        spread = self.factor * y_pred["spread"]
        return ops.mean(0.5 * (spread + ops.square(y - y_pred["mean"]) * ops.exp(-spread)))


def weighted_step(model, optimizer, batch):
    """A step of one's own is given the weights as well."""
    loss = keras.losses.MeanSquaredError()
    with tf.GradientTape() as tape:
        error = loss(batch["target"], model(batch["x"], training=True), sample_weight=batch["sample_weight"])
    optimizer.apply(tape.gradient(error, model.trainable_variables), model.trainable_variables)


def unweighted_step(model, optimizer, batch):
    weighted_step(model, optimizer, batch | {"sample_weight": tf.ones_like(batch["sample_weight"])})
