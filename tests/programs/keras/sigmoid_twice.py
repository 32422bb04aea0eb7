"""A sigmoid head, and a binary cross entropy of logits."""

import keras
from keras import layers


def build():
    model = keras.Sequential([keras.Input((16,)), layers.Dense(1), layers.Activation("sigmoid")])
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))  # wrong  # fault
    # right: model.compile("sgd", "binary_crossentropy")
    return model


def step(model, inputs):
    model.train_on_batch(inputs["x"], inputs["y"])
