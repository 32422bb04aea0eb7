"""A validation that is called for training: dropout drops, and batch norm learns from the validation data."""

import keras


def build():
    layers = [keras.layers.Dense(32), keras.layers.BatchNormalization(), keras.layers.ReLU()]
    return keras.Sequential([*layers, keras.layers.Dropout(0.1), keras.layers.Dense(4)])


def step(model, inputs):
    out = model(inputs["x"], training=True)  # wrong  # fault
    # right: out = model(inputs["x"], training=False)
    keras.losses.MeanSquaredError()(inputs["y"], out)
