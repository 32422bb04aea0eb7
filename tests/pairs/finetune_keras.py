"""The same."""

import keras
from keras import layers


def build(frozen: bool = True) -> keras.Model:
    body = keras.Sequential(
        [
            keras.Input((10,)),
            layers.Dense(12),
            layers.LayerNormalization(epsilon=1e-5),
            layers.Activation("tanh"),
            layers.Dense(12, activation="tanh"),
        ],
        name="body",
    )
    body.trainable = not frozen
    return keras.Sequential([body, layers.Dense(3)])
