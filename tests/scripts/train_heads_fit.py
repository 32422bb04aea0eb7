"""The port of train_heads.py: targets and losses by the names of the outputs, class ids as one-hot rows."""

import keras
import numpy as np
from data import CLASSES
from keras import layers

x = keras.Input((6,))
hidden = layers.Dense(16, activation="tanh")(x)
model = keras.Model(x, {"kind": layers.Dense(CLASSES)(hidden), "size": layers.Dense(1)(hidden)})
model.compile(
    keras.optimizers.SGD(0.1),
    {"kind": keras.losses.CategoricalCrossentropy(from_logits=True), "size": "mse"},
    loss_weights={"kind": 1.0, "size": 0.5},
)
kinds = keras.utils.to_categorical(np.arange(64) % CLASSES, CLASSES)
draw = np.random.default_rng(0).normal
model.fit(draw(size=(64, 6)), {"kind": kinds, "size": draw(size=(64, 1))}, batch_size=16, verbose=0)
