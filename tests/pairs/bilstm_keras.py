"""The same as two Bidirectional layers."""

import keras
from keras import layers


def build(activation: str = "tanh") -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((7, 5)),
            layers.Bidirectional(layers.LSTM(6, return_sequences=True)),
            layers.Bidirectional(layers.LSTM(6, return_sequences=True, activation=activation)),
            layers.Dense(3),
        ]
    )
