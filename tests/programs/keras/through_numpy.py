"""An activation goes through NumPy: the tape does not see it come back."""

import keras
import numpy as np
import tensorflow as tf

from tests.programs.keras.usual import step as step


class Clipped(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(8)
        self.head = keras.layers.Dense(4)

    def call(self, x):
        hidden = self.body(x)
        hidden = tf.constant(np.clip(hidden.numpy(), -1, 1))  # fault
        return self.head(hidden)


class ClippedRight(Clipped):
    def call(self, x):
        return self.head(tf.clip_by_value(self.body(x), -1, 1))


def build():
    model = Clipped()  # wrong
    # right: model = ClippedRight()
    model.compile(keras.optimizers.SGD(0.1))
    return model
