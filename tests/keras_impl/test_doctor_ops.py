"""What the doctor sees the ops of a step do: copies, waits, broadcasts, numbers that are not finite."""

import keras
import numpy as np
import tensorflow as tf
from observing import observed

from parity.core.ownership import shown

X = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)


def dense():
    return keras.Sequential([keras.layers.Dense(4, name="dense")])


def copies(step, what):
    return [copy for copy in step.copies if copy.what == what]


def test_what_is_moved_twice_was_there_already():
    def step(model, inputs):
        hidden = model(inputs["x"])
        for _ in range(3):
            with tf.device("GPU:1"):
                tf.identity(hidden)

    (copy,) = copies(observed(dense, step, {"x": X})[0], "to")
    assert (copy.count, copy.again, copy.bytes) == (3, 2, 64)


READS = {
    "numpy": lambda y: y.numpy(),
    "asarray": lambda y: np.asarray(y),
    "convert": lambda y: keras.ops.convert_to_numpy(y),
    "item": lambda y: float(y[0, 0]),
    "int": lambda y: int(y[0, 0]),
    "bool": lambda y: bool(y[0, 0] > 0),
    "if": lambda y: 1 if y[0, 0] > 0 else 2,
    "print": lambda y: str(y),
    "format": lambda y: f"{y[0, 0]:.1f}",
    "tf.print": lambda y: tf.print(y, output_stream="file:///dev/null"),
    "mask": lambda y: tf.boolean_mask(y, y > 0),
    "index": lambda y: y[y > 0],
    "where": lambda y: tf.where(y > 0),
}
WHAT = {"asarray": "numpy", "convert": "numpy", "int": "item", "if": "bool", "format": "print", "tf.print": "print"}
WHAT |= dict.fromkeys(("mask", "index", "where"), "boolean_index")


def test_every_way_in_which_the_host_waits():
    def step(model, inputs):
        for read in READS.values():
            read(model(inputs["x"]))

    (seen,) = observed(dense, step, {"x": X})
    found = {copy.place.source: copy for copy in seen.copies if copy.tensor.origin != "input x"}
    assert len(found) == len(READS)
    for name, read in READS.items():
        copy = found[shown(__file__, read.__code__.co_firstlineno)]
        assert copy.what == WHAT.get(name, name), name
        assert (copy.source, copy.count) == ("GPU:0", 1), name


def test_what_lies_on_the_host_or_is_read_by_keras_is_not_the_users():
    def step(model, inputs):
        model.train_on_batch(inputs["x"], inputs["t"])
        np.asarray(inputs["x"])
        with tf.device("CPU:0"):
            float(tf.reduce_sum(inputs["x"]))

    def build():
        model = dense()
        model.compile("sgd", "mse")
        return model

    (seen,) = observed(build, step, {"x": X, "t": X[:, :4]})
    assert {copy.tensor.origin.partition(" ")[0] for copy in seen.copies} <= {"input", ""}
    assert {copy.what for copy in seen.copies} == {"implicit"}
