"""An `if` on the loss: Python has to wait for the GPU to know which way to go."""

import tensorflow as tf  # noqa: F401 - the line marked right needs it

from tests.programs.keras.usual import build as build
from tests.programs.keras.usual import train

BEST = []


def step(model, inputs):
    loss = train(model, inputs)
    if loss < 0.01:  # wrong  # fault
        BEST.append(loss)  # wrong
    # right: BEST.append(tf.where(loss < 0.01, loss, 0.01))
