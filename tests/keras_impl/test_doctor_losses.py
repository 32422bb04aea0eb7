"""The loss calls that the doctor sees, whichever way they are made."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from observing import line, observed

X = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)
IDS = np.array([0, 1, 2, 3])


def dense():
    return keras.Sequential([keras.layers.Dense(4, name="dense")])


LOSSES = {
    "class": (lambda t, y: keras.losses.MeanSquaredError()(t, y), "mse_loss"),
    "function": (lambda t, y: keras.losses.mean_squared_error(t, y), "mse_loss"),
    "by name": (lambda t, y: keras.losses.get("mse")(t, y), "mse_loss"),
    "ids": (lambda t, y: keras.losses.SparseCategoricalCrossentropy(True)(IDS, y), "cross_entropy"),
    "tf.nn": (lambda t, y: tf.nn.sparse_softmax_cross_entropy_with_logits(IDS, y), "cross_entropy"),
    "classes": (lambda t, y: keras.losses.CategoricalCrossentropy(True)(t, y), "cross_entropy"),
    "binary": (lambda t, y: keras.losses.binary_crossentropy(t, y, True), "binary_crossentropy"),
    "huber": (lambda t, y: keras.losses.Huber()(t, y), "huber"),
}


@pytest.mark.parametrize("way", LOSSES)
def test_a_loss_is_seen_once_and_by_its_name(way):
    call, name = LOSSES[way]

    def step(model, inputs):
        call(inputs["t"], model(inputs["x"]))

    (loss,) = observed(dense, step, {"x": X, "t": X[:, :4]})[0].losses
    assert (loss.function, loss.input.origin, loss.input.shape) == (name, "output of dense", [4, 4])
    assert loss.target.shape in ([4, 4], [4])
    assert (loss.place.phase, loss.place.module) == ("loss", "")


def test_each_call_and_its_line():
    def step(model, inputs):
        y = model(inputs["x"])
        keras.losses.mean_absolute_error(y, tf.transpose(y))  # turned
        mae = keras.losses.MeanAbsoluteError()
        for _ in range(2):
            mae(inputs["t"], tf.reshape(y, (2, 8))[:, :4])  # twice

    first, *others = observed(dense, step, {"x": X, "t": X[:2, :4]})[0].losses
    assert first.place.source == line(step, "# turned")
    assert [(loss.place.source, loss.input.shape) for loss in others] == [(line(step, "# twice"), [2, 4])] * 2


def test_what_a_loss_makes_is_a_loss():
    def step(model, inputs):
        with tf.GradientTape() as tape:
            loss = keras.losses.MeanSquaredError()(inputs["t"], model(inputs["x"]))
        float(loss)
        tape.gradient(loss, model.trainable_variables)

    (seen,) = observed(dense, step, {"x": X, "t": X[:, :4]})
    (read,) = [copy for copy in seen.copies if copy.what == "item"]
    assert read.tensor.origin == "loss"
