"""The functions that branch are seen with their values, whatever layer calls them and however they are named."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from keras_impl.record import calls, tree
from keras_impl.record.pair.vary import embeddings, observed
from parity.pairs.vary.coverage import Observer, Seen
from parity.trace.keys import MODEL

X = np.array([[-2.0, 0.5, 4.0]], np.float32)


class Applied(layers.Layer):
    def __init__(self, function):
        super().__init__(name="applied")
        self.function = function

    def call(self, x):
        return self.function(x)


def seen(layer: layers.Layer, x: np.ndarray) -> set[Seen]:
    model, observer = keras.Sequential([layer]), Observer()
    expected = model(x)
    watched: list = []
    with observed(observer), calls.observed(tree.inner(model), watched.append, lambda *_: None), calls.entered(MODEL):
        output = model(x)
    for call in watched:
        embeddings(call, observer)
    np.testing.assert_array_equal(output, expected)  # it is seen, and not changed
    return set(observer.branches())


@pytest.mark.parametrize(
    ("layer", "name", "ends"),
    [
        (lambda: layers.ReLU(), "relu", {"lower": True, "inside": True}),
        (lambda: layers.ReLU(max_value=6.0), "relu6", {"lower": True, "inside": True, "upper": False}),
        (lambda: layers.LeakyReLU(), "leaky_relu", {"lower": True, "inside": True}),
        (lambda: layers.ELU(), "elu", {"lower": True, "inside": True}),
        (lambda: layers.Activation("relu6"), "relu6", {"lower": True, "inside": True, "upper": False}),
        (lambda: layers.Activation("hard_tanh"), "clamp", {"lower": True, "inside": True, "upper": True}),
        (lambda: Applied(lambda x: ops.clip(x, -9.0, 3.0)), "clamp", {"lower": False, "inside": True, "upper": True}),
        (lambda: Applied(lambda x: tf.nn.relu(x)), "relu", {"lower": True, "inside": True}),
        (lambda: Applied(lambda x: ops.minimum(x, 9.0)), "clamp", {"inside": True, "upper": False}),
    ],
)
def test_kinks(layer, name, ends):
    made = layer()
    assert seen(made, X) == {Seen(f"{name}.{end}", made.name, reached) for end, reached in ends.items()}


def test_a_fused_activation_is_seen():
    found = {one.branch for one in seen(layers.Dense(3, activation="relu"), X)}
    assert found == {"relu.lower", "relu.inside"}


def test_masks_and_embeddings():
    found = seen(Applied(lambda x: ops.where(x < 9, x, 0.0)), X)
    assert found == {Seen("mask.true", "applied", True), Seen("mask.false", "applied", False)}
    found = seen(layer := layers.Embedding(9, 2, mask_zero=True), np.array([[3, 4]]))
    assert found == {
        Seen("embedding.ids", layer.name, True, "2 of 9 drawn"),
        Seen("embedding.padding", layer.name, False),
    }


def test_nothing_is_seen_behind_the_block():
    observer = Observer()
    with observed(observer):
        pass
    layers.ReLU()(X)
    assert observer.branches() == []
