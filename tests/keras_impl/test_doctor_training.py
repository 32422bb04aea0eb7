"""What the doctor sees of a backward pass: gradients, optimizers, cuts, losses scaled, float16."""

import keras
import numpy as np
import tensorflow as tf
from observing import line, observed

X = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)


class Branches(keras.Model):
    """Each of its layers has its own fate."""

    def __init__(self):
        super().__init__()
        self.used = keras.layers.Dense(4)
        self.unused = keras.layers.Dense(4)
        self.cut = keras.layers.Dense(4)
        self.dead = keras.layers.Dense(4)
        self.ids = keras.layers.Embedding(4, 4)
        for layer in (self.used, self.unused, self.cut, self.dead):
            layer.build((None, 8))

    def call(self, x):
        cut = tf.stop_gradient(self.cut(x))  # cut here
        ids = self.ids(tf.constant([0, 1, 2, 3]))
        return self.used(x) + cut + ids + 0.0 * self.dead(x)


def test_a_layer_that_no_tape_sees():
    def step(model, inputs):
        model.used(inputs["x"])  # outside
        with tf.GradientTape() as tape, tape.stop_recording():
            model.unused(inputs["x"])
        with tf.GradientTape():
            model.cut(inputs["x"])

    (seen,) = observed(Branches, step, {"x": X})
    assert [(cut.what, cut.place.module) for cut in seen.cuts] == [("no_tape", "used"), ("stop_recording", "unused")]
    assert seen.cuts[0].tensor.origin == "parameter used.kernel"
    assert seen.cuts[0].place.source == line(step, "# outside")


def test_a_cast_to_float16():
    def step(model, inputs):
        tf.cast(inputs["x"], tf.float16)  # by hand

    assert observed(Branches, step, {"x": X})[0].half == line(step, "# by hand")
