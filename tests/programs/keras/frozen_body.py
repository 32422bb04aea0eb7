"""A body that is frozen: on purpose, perhaps."""

import keras

from tests.programs.keras.usual import step as step


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(8, activation="relu")
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(self.body(x))


def build():
    model = build_right()
    model.body.trainable = False
    return model


def build_right():
    model = Net()
    model.compile(keras.optimizers.SGD(0.1))
    return model
