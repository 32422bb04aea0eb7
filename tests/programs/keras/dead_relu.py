"""A bias that was set so low that no ReLU ever fires: every gradient below it is zero."""

import keras

from tests.programs.keras.usual import step as step


class Net(keras.Model):
    def __init__(self, bias):
        super().__init__()
        self.hidden = keras.layers.Dense(8, "relu", bias_initializer=keras.initializers.Constant(bias))
        self.out = keras.layers.Dense(4, bias_initializer="ones")

    def call(self, x):
        return self.out(self.hidden(x))


def build(bias=-100.0):
    model = Net(bias)
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build(bias=0.1)
