"""The port of train.py that calls `fit`: channels last, one-hot labels, the rate in a schedule."""

import keras
import numpy as np
from data import CLASSES, SIZE
from keras import layers


class Rectified(layers.Layer):
    def call(self, x):
        return keras.ops.relu(x)


model = keras.Sequential(
    [
        keras.Input((SIZE, SIZE, 3)),
        layers.Conv2D(4, 3),
        layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
        Rectified(),
        layers.Flatten(),
        layers.Dense(16, activation="relu"),
        layers.Dropout(0.2),
        layers.Dense(CLASSES),
    ]
)
rate = keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=2, decay_rate=0.5, staircase=True)
model.compile(keras.optimizers.SGD(rate), keras.losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
images = np.random.default_rng(0).normal(size=(48, SIZE, SIZE, 3)).astype("float32")
labels = keras.utils.to_categorical(np.arange(48) % CLASSES, CLASSES)
model.fit(images, labels, batch_size=24, epochs=2, callbacks=[keras.callbacks.TerminateOnNaN()], verbose=0)
