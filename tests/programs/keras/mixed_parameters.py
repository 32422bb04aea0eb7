"""A layer whose weights are bfloat16, among layers of float32."""

import keras

from tests.programs.keras.usual import step as step


def build(dtype="bfloat16"):
    model = keras.Sequential()
    model.add(keras.layers.Dense(32, activation="relu", dtype=dtype))  # fault
    model.add(keras.layers.Dense(4))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build(dtype="mixed_bfloat16")
