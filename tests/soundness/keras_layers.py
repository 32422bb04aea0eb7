"""The layers of chains in Keras: those of torch_layers.py, and others that a wrong port has in their place."""

import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def _conv(inside, outside, kernel, stride=1, pad=0, groups=1, dilation=1, name=None):
    return Padded(pad, outside, kernel, stride, groups=groups, dilation_rate=dilation, name=name)


class Padded(layers.Conv2D):
    """With torch's symmetric padding."""

    def __init__(self, pad, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.pad = pad

    def call(self, x):
        return super().call(tf.pad(x, [[0, 0], [self.pad] * 2, [self.pad] * 2, [0, 0]]) if self.pad else x)

    def compute_output_shape(self, shape):
        grown = (shape[0], shape[1] + 2 * self.pad, shape[2] + 2 * self.pad, shape[3])
        return super().compute_output_shape(grown)


class RMSNorm(layers.Layer):
    def __init__(self, width, eps=1e-6, name=None):
        super().__init__(name=name)
        self.width, self.eps = width, eps

    def build(self, shape):
        self.weight = self.add_weight(shape=(self.width,), initializer="ones", name="weight")

    def call(self, x):
        return x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + self.eps) * self.weight


class PaddedEmbedding(layers.Embedding):
    """The row of the padding id gets no gradient, as in torch."""

    def __init__(self, count, width, pad, name=None):
        super().__init__(count, width, name=name)
        self.pad = pad

    def call(self, ids):
        found = super().call(ids)
        return tf.where((ids == self.pad)[..., None], tf.stop_gradient(found), found)


class PReLU(layers.Layer):
    def __init__(self, width, name=None):
        super().__init__(name=name)
        self.width = width

    def build(self, shape):
        self.weight = self.add_weight(shape=(self.width,), name="weight")

    def call(self, x):
        return tf.where(x > 0, x, self.weight * x)


class Unused(layers.Layer):
    """A layer that nothing calls."""

    def __init__(self, inside, outside, name=None):
        super().__init__(name=name)
        self.pooler = layers.Dense(outside, name="pooler")
        self.pooler.build((None, inside))

    def call(self, x):
        return x


class Constant(layers.Layer):
    """Adds a parameter."""

    def __init__(self, *shape, name=None):
        super().__init__(name=name)
        self.size = shape

    def build(self, shape):
        self.weight = self.add_weight(shape=self.size, name="weight")

    def call(self, x):
        return x + self.weight


class Positions(layers.Layer):
    """Adds the sinusoids of positions. Without a buffer of its own; `buffer` is torch's."""

    def __init__(self, length, width, buffer=0, shift=0, name=None):
        super().__init__(name=name)
        place = np.arange(length)[:, None] + shift
        rate = np.exp(np.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.table = np.concatenate([np.sin(place * rate), np.cos(place * rate)], -1)

    def call(self, x):
        return x + tf.constant(self.table, x.dtype)


class Running(layers.Layer):
    """Subtracts a running mean of its inputs that training moves."""

    def __init__(self, width, rate=0.1, name=None):
        super().__init__(name=name)
        self.width, self.rate = width, rate

    def build(self, shape):
        self.running_mean = self.add_weight(
            shape=(self.width,), initializer="zeros", trainable=False, name="running_mean"
        )

    def call(self, x, training=False):
        if training:
            self.running_mean.assign(self.running_mean * (1 - self.rate) + self.rate * tf.reduce_mean(x, 0))
        return x - self.running_mean


class NoCounter(layers.Layer):
    """Where torch counts: nothing."""

    def call(self, x):
        return x


class Counter(layers.Layer):
    def build(self, shape):
        self.calls = self.add_weight(shape=(1,), initializer=lambda *_, **__: [3.0], trainable=False, name="calls")

    def call(self, x, training=False):
        if training:
            self.calls.assign_add([1.0])
        return x


def _batch_norm(width, eps=1e-5, momentum=0.1, name=None):
    return TorchBatchNorm(momentum=1 - momentum, epsilon=eps, name=name)


class TorchBatchNorm(layers.BatchNormalization):
    """Keeps the unbiased variance, as torch does."""

    def call(self, x, training=False):
        if not training:
            return super().call(x, training=False)
        axes = list(range(len(x.shape) - 1))
        mean, variance = tf.nn.moments(x, axes)
        count = math.prod(x.shape[:-1])
        rate = 1 - self.momentum
        self.moving_mean.assign(self.moving_mean * self.momentum + mean * rate)
        self.moving_variance.assign(self.moving_variance * self.momentum + variance * (rate * count / (count - 1)))
        return (x - mean) * tf.math.rsqrt(variance + self.epsilon) * self.gamma + self.beta


LAYERS: dict[str, Callable[..., keras.Layer]] = {
    "linear": lambda i, o, bias=1, name=None: layers.Dense(o, use_bias=bool(bias), name=name),
    "conv": _conv,
    "conv1d": lambda i, o, k, pad=0, name=None: layers.Conv1D(o, k, padding="same" if pad else "valid", name=name),
    "layer_norm": lambda width, eps=1e-5, name=None: layers.LayerNormalization(epsilon=eps, name=name),
    "rms_norm": RMSNorm,
    "batch_norm": _batch_norm,
    "batch_norm2d": _batch_norm,
    "biased_batch_norm": lambda width, eps=1e-5, momentum=0.1, name=None: layers.BatchNormalization(
        momentum=1 - momentum, epsilon=eps, name=name
    ),
    "group_norm": lambda groups, width, eps=1e-5, name=None: layers.GroupNormalization(groups, epsilon=eps, name=name),
    "embedding": lambda count, width, name=None: layers.Embedding(count, width, name=name),
    "padded_embedding": PaddedEmbedding,
    "dropout": lambda rate, name=None: layers.Dropout(rate, name=name),
    "prelu": PReLU,
    "unused": Unused,
    "constant": Constant,
    "positions": Positions,
    "running": Running,
    "counter": Counter,
    "no_counter": NoCounter,
}
