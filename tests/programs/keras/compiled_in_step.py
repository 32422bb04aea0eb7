"""compile() in the loop: each step has a new optimizer, which has forgotten its momentum, and traces anew."""

import keras
from keras import layers


def model_of():
    return keras.Sequential([keras.Input((16,)), layers.Dense(32, "relu"), layers.Dense(4)])


def build():
    return model_of()  # wrong
    # right: model = model_of()
    # right: model.compile(keras.optimizers.Adam(1e-3), loss="mse")
    # right: return model


def step(model, inputs):
    model.compile(keras.optimizers.Adam(1e-3), loss="mse")  # wrong  # fault
    model.train_on_batch(inputs["x"], inputs["y"])
