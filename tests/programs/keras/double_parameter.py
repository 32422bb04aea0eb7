"""One layer in float64 among others in float32."""

import keras

from tests.programs.keras.usual import step as step


def build(dtype="float64"):
    model = keras.Sequential()
    model.add(keras.layers.Dense(32, activation="relu"))
    model.add(keras.layers.Dense(4, dtype=dtype))  # fault
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build(dtype="float32")
