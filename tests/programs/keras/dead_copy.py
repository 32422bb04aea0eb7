"""Two encoders of one structure, one behind the other: the first is no target network, though its gradient is cut."""

import keras
import tensorflow as tf
from keras import layers

from tests.programs.keras.usual import compiled
from tests.programs.keras.usual import step as step


def encoder():
    return keras.Sequential([layers.Dense(32, "relu"), layers.Dense(16)])


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = encoder(), encoder()

    def call(self, x):
        x = tf.stop_gradient(self.first(x))  # fault
        return self.second(x)


class NetRight(Net):
    def call(self, x):
        return self.second(self.first(x))


def build():
    return compiled(Net())  # wrong
    # right: return compiled(NetRight())
