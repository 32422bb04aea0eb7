"""The same by layers, drawn in the same order."""

import keras
from keras import layers


def build(rate: float, attention: float | None = None) -> keras.Model:
    x = inputs = keras.Input((5, 6))
    x = layers.Dropout(rate)(layers.Dense(32, name="project")(x))
    drop = rate if attention is None else attention
    y = layers.MultiHeadAttention(2, 16, dropout=drop, name="attention")(x, x)
    x = layers.LayerNormalization(epsilon=1e-5, name="first_norm")(x + layers.Dropout(rate)(y))
    y = layers.Dropout(rate)(layers.Dense(48, activation="relu", name="inner")(x))
    y = layers.Dropout(rate)(layers.Dense(32, name="outer")(y))
    x = layers.LayerNormalization(epsilon=1e-5, name="second_norm")(x + y)
    return keras.Model(inputs, layers.Dense(3, name="head")(layers.Dropout(rate)(x)))
