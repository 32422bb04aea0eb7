"""The same in Keras's shortest form, the activations within the layers."""

import keras
from keras import layers


def build(hidden: int, activation: str = "relu") -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(hidden, activation="relu"),
            layers.Dense(hidden, activation=activation),
            layers.Dense(5),
        ]
    )
