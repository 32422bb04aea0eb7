"""A learning rate of 1e18: one update replaces the parameters."""

import keras
from keras import layers


def build():
    model = keras.Sequential([keras.Input((16,)), layers.Dense(8, "tanh"), layers.Dense(4)])
    optimizer = keras.optimizers.SGD(learning_rate=1e18)  # wrong  # fault
    model.compile(optimizer, "mse")  # wrong
    # right: model.compile(keras.optimizers.Adam(0.1), "mse")
    return model


def step(model, inputs):
    model.fit(inputs["x"], inputs["y"], verbose=0)
