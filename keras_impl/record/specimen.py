"""A model of the layers that the five built-in models lack, as a subject for planted faults."""

import math

import keras
import tensorflow as tf

from parity.config import schema


def build(config: schema.Specimen) -> keras.Model:
    """Create the model that `config` describes."""
    return Specimen(config.classes)


class Specimen(keras.Model):
    """A chain of convolution, norm, activation, pooling and dense layers: (batch, 16, 16, 3) to (batch, classes)."""

    def __init__(self, classes: int):
        super().__init__()
        self.conv = Conv2d(8, 3, strides=2, name="conv")
        self.group_norm = keras.layers.GroupNormalization(2, epsilon=1e-5, name="group_norm")
        self.gelu = GELU(name="gelu")
        self.pool = MaxPool2d(3, strides=2, name="pool")
        self.up = keras.layers.Conv2DTranspose(8, 2, strides=2, name="up")
        self.flatten = Flatten(name="flatten")
        self.linear = keras.layers.Dense(512, name="linear")
        self.head = keras.layers.Dense(classes, name="head")
        self.softmax = keras.layers.Softmax(name="softmax")
        self.chain = [
            self.conv, self.group_norm, self.gelu, self.pool, self.up,
            self.flatten, self.linear, self.head, self.softmax,
        ]  # fmt: skip

    def build(self, input_shape: tuple) -> None:
        self.conv.build(input_shape)
        self.group_norm.build((None, 8, 8, 8))
        self.up.build((None, 4, 4, 8))
        self.linear.build((None, 512))
        self.head.build((None, 512))

    def call(self, x: tf.Tensor) -> tf.Tensor:
        for layer in self.chain:
            x = layer(x)
        return x


class Conv2d(keras.layers.Conv2D):
    """Conv2D with PyTorch's padding of 1 on every side; Keras's "same" pads only bottom and right at stride 2."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return super().call(tf.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))


class MaxPool2d(keras.layers.MaxPooling2D):
    """MaxPooling2D with PyTorch's padding of 1 on every side, and its rounding down of the output size."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return super().call(tf.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-math.inf))


class Flatten(keras.layers.Flatten):
    """Flatten in PyTorch's order: channels, height, width."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return super().call(tf.transpose(x, (0, 3, 1, 2)))


class GELU(keras.layers.Layer):
    """The exact GELU; Keras's own rounds its constant, the square root of 2, through float32."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x * 0.5 * (1 + tf.math.erf(x * math.sqrt(0.5)))
