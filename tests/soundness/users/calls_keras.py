"""What a plain call does in Keras: defaults of arguments, tapes within call, what wraps it."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from nets_keras import Mlp, mlp

__all__ = ["mlp"]


class Centred(keras.Model):
    """Centred by the batch in training, which is what a call without arguments is taken for."""

    def __init__(self):
        super().__init__()
        self.body, self.head = keras.layers.Dense(16), keras.layers.Dense(4)

    def call(self, x: Any, training: bool = True) -> Any:
        hidden = self.body(x)
        return self.head(ops.tanh(hidden - ops.mean(hidden, 0) if training else hidden))


class CentredInTraining(Centred):
    def call(self, x: Any, training: Any = None) -> Any:
        return super().call(x, training=bool(training))


def centred() -> keras.Model:
    return CentredInTraining()


class Centre(keras.layers.Layer):
    """Trains unless it is told otherwise."""

    def call(self, x: Any, training: bool = True) -> Any:
        return x - ops.mean(x, 0) if training else x


class CentredWithin(keras.Model):
    """`passed`: says itself how the inner layer is called."""

    def __init__(self, passed: bool = False):
        super().__init__()
        self.body = keras.layers.Dense(16)
        self.centre = Centre()
        self.head = keras.layers.Dense(4)
        self.passed = passed

    def call(self, x: Any) -> Any:
        hidden = self.body(x)
        return self.head(ops.tanh(self.centre(hidden, training=False) if self.passed else self.centre(hidden)))


def never_centred() -> keras.Model:
    return CentredWithin(passed=True)


def centred_functional(baked: bool = True) -> keras.Model:
    """A functional model keeps training=True of the call that made it."""
    x = keras.Input((8,))
    hidden = keras.layers.Dense(16)(x)
    centred = Centre()(hidden, training=True) if baked else Centre()(hidden, training=False)
    return keras.Model(x, keras.layers.Dense(4)(ops.tanh(centred)))


class Optional(Mlp):
    def call(self, x: Any, residual: bool = True, scale: float = 0.5) -> Any:
        hidden = self.body(x)
        return self.head(hidden * scale + (ops.concatenate([x, x], 1) if residual else 0))


class OtherDefault(Optional):
    def call(self, x: Any, residual: bool = False, scale: float = 0.5) -> Any:
        return super().call(x, residual, scale)


class OtherScale(Optional):
    def call(self, x: Any, residual: bool = True, scale: float = 1.0) -> Any:
        return super().call(x, residual, scale)


class Energy(keras.Model):
    """`sign`: of forces. `mean`: they are those of the mean energy. `stopped`: no gradient goes through them."""

    def __init__(self, sign: float = -1.0, mean: bool = False, stopped: bool = False):
        super().__init__()
        self.body = keras.layers.Dense(16, activation="softplus")
        self.head = keras.layers.Dense(1)
        self.sign, self.mean, self.stopped = sign, mean, stopped

    def call(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            energy = self.head(self.body(x))
            total = ops.mean(energy) if self.mean else ops.sum(energy)
        forces = self.sign * tape.gradient(total, x)
        return energy, ops.stop_gradient(forces) if self.stopped else forces

    def build(self, shape: Any) -> None:
        self.body.build(shape)
        self.head.build((None, 16))
        self.built = True

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        return ops.mean(ops.square(y - y_pred[0])) + ops.mean(ops.square(1 - y_pred[1]))


def energy(**kwargs: Any) -> keras.Model:
    return Energy(**kwargs)


class ForcesAlone(Energy):
    def call(self, x: Any) -> Any:
        return super().call(x)[1]

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return keras.Model.compute_loss(self, *args, **kwargs)


def forces(**kwargs: Any) -> keras.Model:
    return ForcesAlone(**kwargs)


def of_energy(outputs: Any, target: Any) -> Any:
    return ops.mean(ops.square(target - outputs[0])) + ops.mean(ops.square(1 - outputs[1]))


class Heat(keras.Model):
    """`squared`: takes the square of the first derivative for the second."""

    def __init__(self, squared: bool = False):
        super().__init__()
        self.body = keras.layers.Dense(12, activation="tanh")
        self.head = keras.layers.Dense(1)
        self.squared = squared

    def build(self, shape: Any) -> None:
        self.body.build(shape)
        self.head.build((None, 12))
        self.built = True

    def call(self, points: Any) -> Any:
        x, t = points[:, :1], points[:, 1:]
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch([x, t])
                u = self.head(self.body(ops.concatenate([x, t], 1)))
            first, by_time = inner.gradient(u, [x, t])
        second = ops.square(first) if self.squared else outer.gradient(first, x)
        return by_time - 0.5 * second


class Encoded(keras.Model):
    """torch's encoder layer by hand. What stands in padding is computed as everything else."""

    def __init__(self, pooled: bool = False, norm_first: bool = False):
        super().__init__()
        self.query, self.key, self.value, self.out = (keras.layers.Dense(8) for _ in range(4))
        self.norm1 = keras.layers.LayerNormalization(epsilon=1e-5)
        self.linear1 = keras.layers.Dense(16, activation="relu")
        self.linear2 = keras.layers.Dense(8)
        self.norm2 = keras.layers.LayerNormalization(epsilon=1e-5)
        self.pooled, self.norm_first = pooled, norm_first

    def call(self, inputs: Any) -> Any:
        x = inputs["x"]
        valid = ops.arange(5, dtype="int64")[None] < ops.expand_dims(ops.maximum(inputs["lengths"], 1), 1)
        if self.norm_first:
            x = x + self.attention(self.norm1(x), valid)
            x = x + self.linear2(self.linear1(self.norm2(x)))
        else:
            x = self.norm1(x + self.attention(x, valid))
            x = self.norm2(x + self.linear2(self.linear1(x)))
        if not self.pooled:
            return x
        weights = ops.expand_dims(ops.cast(valid, x.dtype), -1)
        return ops.sum(x * weights, 1) / ops.sum(weights, 1)

    def attention(self, x: Any, valid: Any) -> Any:
        query, key, value = (self.heads(layer(x)) for layer in (self.query, self.key, self.value))
        scores = ops.einsum("bqhc,bkhc->bhqk", query, key) / 2.0
        chances = ops.softmax(ops.where(valid[:, None, None], scores, -1e30))
        return self.out(ops.reshape(ops.einsum("bhqk,bkhc->bqhc", chances, value), (-1, 5, 8)))

    def heads(self, x: Any) -> Any:
        return ops.reshape(x, (-1, 5, 2, 4))


class LowRank(keras.Model):
    def __init__(self, scale: float = 2.0):
        super().__init__()
        self.base = keras.layers.Dense(6)
        self.down, self.up = keras.layers.Dense(2, use_bias=False), keras.layers.Dense(6, use_bias=False)
        self.scale = scale

    def call(self, x: Any) -> Any:
        return self.base(x) + self.scale * self.up(self.down(x))


class Halved(Mlp):
    def call(self, x: Any) -> Any:
        return self.head(self.body(x) / 2)


class MeanTaken(Mlp):
    def call(self, x: Any) -> Any:
        return super().call(x - ops.stop_gradient(ops.mean(x, 1, keepdims=True)))


class Wrapped(Mlp):
    def __call__(self, x: Any, **kwargs: Any) -> Any:
        return super().__call__(x / 4, **kwargs)


class Doubled(Mlp):
    def call(self, x: Any) -> Any:
        return super().call(2 * x)
