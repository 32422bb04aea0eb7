"""A layer that was put on the host, beside layers on the GPU."""

import keras
import tensorflow as tf

from tests.programs.keras.usual import step as step


class Net(keras.Model):
    def __init__(self, device):
        super().__init__()
        with tf.device(device):
            self.body = keras.layers.Dense(32, activation="relu")  # fault
            self.body.build((None, 16))
        with tf.device("/GPU:0"):
            self.head = keras.layers.Dense(4)
            self.head.build((None, 32))

    def call(self, x):
        return self.head(self.body(x))


def build(device="/CPU:0"):
    model = Net(device)
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build("/GPU:0")
