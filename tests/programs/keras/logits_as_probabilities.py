"""A linear head, compiled with a loss that takes probabilities; trained by fit."""

import keras
from keras import layers


def build():
    model = keras.Sequential([keras.Input((16,)), layers.Dense(8, activation="relu"), layers.Dense(4)])
    model.compile(
        optimizer="adam",
        loss="sparse_categorical_crossentropy",  # wrong  # fault
        # right: loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def step(model, inputs):
    model.fit(inputs["x"], inputs["y"], verbose=0)
