"""A logarithm of what a ReLU made: of zeros."""

import keras
import tensorflow as tf

from tests.programs.keras.usual import step as step


class Rates(keras.Model):
    def __init__(self):
        super().__init__()
        self.out = keras.layers.Dense(8, activation="relu")

    def call(self, x):
        return tf.math.log(self.out(x))  # fault


class RatesRight(Rates):
    def call(self, x):
        return tf.math.log(self.out(x) + 1e-3)


def build():
    model = Rates()  # wrong
    # right: model = RatesRight()
    model.compile(keras.optimizers.SGD(1e-4))
    return model
