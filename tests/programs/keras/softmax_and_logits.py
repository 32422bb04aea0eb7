"""A softmax head, compiled with a loss that takes logits; trained by fit."""

import keras
from keras import layers


def build():
    model = keras.Sequential([keras.Input((16,)), layers.Dense(8, "relu"), layers.Dense(4, activation="softmax")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # fault
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


def build_right():
    model = keras.Sequential([keras.Input((16,)), layers.Dense(8, "relu"), layers.Dense(4, activation="softmax")])
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=False), metrics=["accuracy"])
    return model


def step(model, inputs):
    model.fit(inputs["x"], inputs["y"], verbose=0)
