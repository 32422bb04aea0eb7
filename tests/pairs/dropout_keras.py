"""The same."""

import keras
from keras import layers


def build(rate: float = 0.25, second: float | None = None) -> keras.Model:
    second = rate if second is None else second
    return keras.Sequential(
        [
            keras.Input((10,)),
            layers.Dropout(rate),
            layers.Dense(20, activation="relu"),
            layers.Dropout(second),
            layers.Dense(6),
        ]
    )
