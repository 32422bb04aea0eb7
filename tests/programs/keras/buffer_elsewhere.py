"""A table that is not trained, made on the host, in a layer that lives on the GPU."""

import keras
import tensorflow as tf

from tests.programs.keras.usual import step as step


class Masked(keras.layers.Layer):
    def __init__(self, device):
        super().__init__()
        self.device = device

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 16), initializer="glorot_uniform", name="kernel")
        with tf.device(self.device):
            self.mask = self.add_weight(shape=(8, 16), initializer="ones", trainable=False, name="mask")

    def call(self, x):
        return tf.matmul(x, self.kernel) * self.mask


def build(device="/CPU:0"):
    model = keras.Sequential([Masked(device), keras.layers.Dense(4)])  # fault
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build("/GPU:0")
