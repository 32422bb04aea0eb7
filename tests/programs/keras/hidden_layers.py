"""Layers that hang on an object Keras does not look into: never listed, never trained."""

import keras

from tests.programs.keras.usual import step as step


class Blocks:
    def __init__(self):
        self.first = keras.layers.Dense(16, activation="relu")  # fault


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = Blocks()
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.blocks.first(x))


class NetRight(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(16, activation="relu")
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.first(x))


def compiled(model):
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build():
    return compiled(Net())  # wrong
    # right: return compiled(NetRight())
