"""The stack of the layers that are being called: whoever asks, it is the same one, and it is empty afterwards."""

import threading

import keras
import pytest
import tensorflow as tf

from keras_impl.record import calls, tree


class Asking(keras.layers.Layer):
    """Notes where the stack says that it is being called."""

    def __init__(self) -> None:
        super().__init__(name="asking")
        self.seen: list = []

    def call(self, x: tf.Tensor) -> tf.Tensor:
        self.seen.append(calls.innermost())
        if tf.executing_eagerly() and tf.reduce_any(tf.math.is_nan(x)):
            raise ValueError
        return x


def asking() -> tuple[keras.Model, Asking]:
    inner = Asking()
    model = keras.Sequential([keras.Sequential([inner], name="block")])
    return model, inner


def test_the_innermost_layer_is_the_one_that_is_being_called():
    model, inner = asking()
    inner.seen.clear()
    with calls.observed(tree.inner(model), lambda call: None, lambda call, outputs: None):
        model(tf.zeros((1, 2)))
    assert inner.seen[-1] == "block/asking" and calls.running() == []
    assert "call" not in vars(inner)
    inner(tf.zeros((1, 2)))  # no longer observed
    assert inner.seen[-1] is None


def test_a_call_that_fails_is_over():
    model, inner = asking()
    with calls.observed(tree.inner(model), lambda call: None, lambda call, outputs: None), pytest.raises(ValueError):
        inner(tf.constant([[float("nan")]]))
    assert calls.running() == []


def test_each_thread_has_a_stack_of_its_own():
    seen: list = []
    with calls.entered("layer"):
        thread = threading.Thread(target=lambda: seen.append(calls.innermost()))
        thread.start()
        thread.join()
        assert calls.innermost() == "layer" and seen == [None]


def test_arguments_are_reported_in_the_order_of_the_signature():
    layer, given = keras.layers.MultiHeadAttention(1, 2), []
    query, value = tf.zeros((1, 3, 2)), tf.ones((1, 4, 2))
    layer(query, value)
    with calls.observed({"attention": layer}, lambda call: given.extend(call.tensors), lambda call, outputs: None):
        layer(value=value, query=query)
    assert [tuple(tensor.shape) for tensor in given] == [(1, 3, 2), (1, 4, 2)]
