"""Images that are flattened to a width that they do not have."""

import keras
import tensorflow as tf

from tests.programs.keras.usual import step as step


class Net(keras.Model):
    def __init__(self, features):
        super().__init__()
        self.conv = keras.layers.Conv2D(4, 3, activation="relu")
        self.out = keras.layers.Dense(3)
        self.features = features

    def call(self, x):
        hidden = tf.reshape(self.conv(x), [x.shape[0], self.features])  # fault
        return self.out(hidden)


def build(features=4 * 8 * 8):
    model = Net(features)
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build(features=4 * 6 * 6)
