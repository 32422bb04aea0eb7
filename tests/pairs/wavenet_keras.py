"""The same by Keras's causal padding; the gate is called before the filter."""

import keras
from keras import layers


def build(channels: int, padding: str = "causal") -> keras.Model:
    wave = keras.Input((None, 2), name="wave")
    x = layers.Conv1D(channels, 1, name="start")(wave)
    for i in range(3):
        kind = {"kernel_size": 2, "dilation_rate": 2**i, "padding": padding if i == 2 else "causal"}
        gate = layers.Conv1D(channels, activation="sigmoid", name=f"gate_{i}", **kind)(x)
        value = layers.Conv1D(channels, activation="tanh", name=f"filter_{i}", **kind)(x)
        x = x + layers.Conv1D(channels, 1, name=f"residual_{i}")(value * gate)
    return keras.Model(wave, layers.Conv1D(4, 1, name="end")(layers.ReLU()(x)))
