"""Answers of Keras layers to probes, and how differences between two layers are described."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from keras_impl.experiment.behaviour import answered, inputs
from keras_impl.record import precision
from parity.diagnose.experiment import probes
from parity.diagnose.experiment.behaviour import describe
from parity.diagnose.experiment.probes import Responses

X = np.sin(np.linspace(-2.0, 3.0, 48).reshape(2, 3, 8))
IMAGES = np.sin(np.linspace(-2.0, 3.0, 150).reshape(2, 5, 5, 3))


def answers(layer, *args, **kwargs) -> Responses:
    args = tuple(map(tf.constant, args))
    return answered(layer, args, kwargs, inputs(args, kwargs))


@pytest.fixture(autouse=True)
def in_float64():
    keras.utils.set_random_seed(0)
    with precision.policy("float64"):
        yield


ACTIVATIONS = [
    (lambda x: ops.leaky_relu(x, 0.01), lambda x: ops.leaky_relu(x, 0.3), "torch 0.01 x below zero, keras 0.3 x"),
    (ops.relu, ops.relu6, "keras 0 below zero, x from zero to 6 and 6 above 6"),
    (lambda x: ops.gelu(x, False), ops.gelu, "torch exact GELU"),
    (ops.elu, lambda x: ops.elu(x, 0.5), "torch ELU, keras ELU with 0.5 for alpha"),
    (ops.silu, ops.hard_silu, "torch SiLU, keras hard swish"),
    (ops.softplus, keras.activations.mish, "torch softplus, keras mish"),
]


@pytest.mark.parametrize(("one", "other", "words"), ACTIVATIONS)
def test_activations_are_told_by_their_curves(one, other, words):
    assert words in describe(answers(one, X), answers(other, X))


def test_layers_are_told_by_what_they_do():
    one, other = answers(layers.LayerNormalization(), X), answers(layers.LayerNormalization(rms_scaling=True), X)
    assert "keras gives another output when 1 is added" in describe(one, other)
    one, other = answers(layers.Softmax(-1), X), answers(layers.Softmax(1), X)
    assert "keras looks at more than one position along axis 1" in describe(one, other)
    one, other = (answers(pool(3, 1, "same"), IMAGES) for pool in (layers.MaxPooling2D, layers.AveragePooling2D))
    assert "torch is not linear, keras is linear" in describe(one, other)


def test_a_causal_mask_is_told():
    attention = layers.MultiHeadAttention(2, 4)
    one = answers(lambda x: attention(x, x), X)
    other = answers(lambda x: attention(x, x, use_causal_mask=True), X)
    assert "keras looks at a position along axis 1 and those before it" in describe(one, other)


def test_inputs_are_found_in_the_arguments_whatever_their_axes_and_names():
    def last(x, *, scale):
        return np.moveaxis((ops.leaky_relu(x, 0.3) * scale).numpy(), -1, 1)

    canonical = [np.moveaxis(IMAGES, -1, 1)]
    own = answered(last, (tf.constant(IMAGES),), {"scale": 1.0}, canonical)
    one = answered(lambda x: ops.leaky_relu(x, 0.01), tuple(map(tf.constant, canonical)), {}, canonical)
    assert "torch 0.01 x below zero, keras 0.3 x" in describe(one, own)


def test_integers_of_any_size_and_texts_are_no_obstacle(tmp_path):
    def rows(x, ids, text):
        return ops.take(x, ops.cast(ids, "int32"), 0)

    args = X, np.array([0, 1], np.int16), np.array(["a"])
    assert [array.dtype.name for array in inputs(args, {})] == ["float64", "int64"]
    probes.write(answers(rows, *args), tmp_path)
    words = describe(probes.read(tmp_path), answers(lambda *given: rows(*given) * 2.0, *args))
    assert words == "both act on each element alone; torch x, keras 2 x"
