"""A stop_gradient between encoder and decoder, left from an experiment: the encoder never learns."""

import keras
import tensorflow as tf

from tests.programs.keras.usual import step as step


class AutoEncoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.layers.Dense(4, activation="tanh")
        self.decoder = keras.layers.Dense(16)

    def call(self, x):
        code = self.encoder(x)
        return self.decoder(tf.stop_gradient(code))  # fault


class AutoEncoderRight(AutoEncoder):
    def call(self, x):
        return self.decoder(self.encoder(x))


def compiled(model):
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build():
    return compiled(AutoEncoder())  # wrong
    # right: return compiled(AutoEncoderRight())
