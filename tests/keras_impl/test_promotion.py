"""A float64 run has no float32 in it, whatever the model asks for; and what was lifted is named."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from tensorflow.python.framework import op_callbacks  # no public door

from keras_impl.record import precision
from keras_impl.record.calls import entered
from keras_impl.record.precision import promoted

X = np.linspace(-2.0, 2.0, 24).reshape(2, 3, 4)


class Norm(layers.Layer):
    """As KerasHub's Llama has it."""

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="ones")

    def call(self, x):
        x = ops.cast(x, "float32")
        var = ops.mean(ops.power(x, 2), axis=-1, keepdims=True)
        return ops.cast(x * ops.rsqrt(var + 1e-6), self.compute_dtype) * self.scale


class Rotary(layers.Layer):
    def call(self, x):
        inverse = ops.power(ops.cast(10000.0, "float32"), -ops.arange(0, 4, dtype="float32") / ops.cast(4, "float32"))
        return x * ops.cast(ops.cos(inverse), x.dtype)


class Raw(layers.Layer):
    """By TensorFlow itself."""

    def __init__(self):
        super().__init__()
        self.table = tf.Variable(tf.linspace(0.1, 0.4, 4), trainable=False)
        self.other = tf.constant(np.float32([1, 2, 3, 4]))

    def call(self, x):
        y = (
            tf.cast(x, tf.float32) * tf.constant(0.1)
            + tf.zeros(4)
            + tf.fill([4], 0.3)
            + tf.ones((4,), dtype=tf.float32)
        )
        return y * self.table + self.other + tf.range(0.0, 0.4, 0.1)


def made(build, at="float64", lift=True, x=X):
    """What a layer gives, what was lifted, and the ops that made a float32."""
    low = set()

    def see(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        low.update(op_type for output in outputs if output.dtype == tf.float32)

    with precision.policy(at), promoted(at if lift else "float32") as places:
        op_callbacks.add_op_callback(see)
        try:
            layer = build()
            result = layer(tf.constant(x))
        finally:
            op_callbacks.remove_op_callback(see)
    return result.numpy(), places, low


def raw_by_numpy(x):
    y = x * 0.1 + 0.3 + 1
    return y * np.linspace(0.1, 0.4, 4) + np.array([1, 2, 3, 4]) + np.array([0.0, 0.1, 0.2, 0.3])


def norm_by_numpy(x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def rotary_by_numpy(x):
    return x * np.cos(10000.0 ** (-np.arange(4) / 4))


def collected(x):
    rows = tf.TensorArray(tf.float32, size=2)
    for row in range(2):
        rows = rows.write(row, x[row] / 3)
    return rows.stack()


ISLANDS = {
    "function of a number": (lambda: layers.Lambda(lambda x: x / tf.sqrt(8.0)), lambda x: x / 8.0**0.5),
    "function of numbers": (
        lambda: layers.Lambda(lambda x: x * tf.math.reduce_sum([0.1, 0.2])),
        lambda x: x * (0.1 + 0.2),
    ),
    "map": (
        lambda: layers.Lambda(lambda x: tf.map_fn(lambda row: row / 3, x, fn_output_signature=tf.float32)),
        lambda x: x / 3,
    ),
    "array of tensors": (lambda: layers.Lambda(collected), lambda x: x / 3),
    "norm": (Norm, norm_by_numpy),
    "rotary": (Rotary, rotary_by_numpy),
    "raw": (Raw, raw_by_numpy),
    "rescaling": (lambda: layers.Rescaling(1 / 255, 0.1), lambda x: x / 255 + 0.1),
    "python float": (lambda: layers.Lambda(lambda x: x * ops.cast(0.1, x.dtype)), lambda x: x * 0.1),
    "arange": (
        lambda: layers.Lambda(lambda x: x + ops.arange(0.1, 0.45, 0.1)),
        lambda x: x + np.arange(0.1, 0.45, 0.1),
    ),
}


@pytest.mark.parametrize("name", ISLANDS)
def test_an_island_is_computed_in_float64(name):
    build, by_numpy = ISLANDS[name]
    result, _, _ = made(build)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, by_numpy(X), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", ["norm", "rotary", "rescaling", "python float"])
def test_without_lifting_it_is_not(name):
    build, by_numpy = ISLANDS[name]
    result, places, _ = made(build, lift=False)
    assert places == []
    assert np.abs(result - by_numpy(X)).max() > 1e-11


def test_whole_numbers_are_those_of_a_float32_run():
    lengths = tf.constant([1, 3, 4], "int32")
    with precision.policy("float64"), promoted("float64"):
        assert (ops.arange(4)[None] < lengths[:, None]).numpy().sum() == 8
        assert ops.add(ops.arange(4), 0.5).dtype == tf.float64
        assert ops.convert_to_tensor(3).dtype == ops.sum(tf.constant([True])).dtype == tf.int32
        assert keras.backend.result_type(int) == "int32"
    with precision.policy("float64"):
        assert keras.backend.result_type(int) == "int64"


def test_no_op_makes_a_float32():
    assert made(Norm)[2] == set() == made(Rotary)[2]
    assert "Cast" in made(Norm, lift=False)[2]


def test_the_places_are_named_once():
    assert made(Norm)[1] == ["build: cast: float32"]
    assert set(made(Rotary)[1]) == {"build: cast: float32", "build: arange: float32"}
    assert made(lambda: layers.Dense(2, dtype="float32"))[1] == ["build: Dense(dtype=float32)"]
    assert "build: tf.cast: float32" in made(Raw)[1]
    assert made(lambda: layers.Dense(2))[1] == []


def test_a_place_is_that_of_the_layer_that_runs():
    with precision.policy("float64"), promoted("float64") as places:
        layer = Norm()
        layer(X)
        with entered("block_0/norm"):
            layer(X)
    assert places == ["block_0/norm: cast: float32"]


def test_a_layer_of_float32_has_weights_of_float64():
    with precision.policy("float64"), promoted("float64"):
        layer = layers.Dense(2, dtype="float32")
        layer(X)
        variable = tf.Variable([0.1, 0.2])
        told = tf.Variable(lambda: tf.zeros(2), dtype=tf.float32)
        counts = tf.Variable(0, dtype=tf.int64), tf.Variable(1, dtype=tf.float32)
    assert [each.dtype.name for each in counts] == ["int64", "float64"]
    assert {layer.kernel.dtype, variable.dtype.name, told.dtype.name} == {"float64"}
    assert variable.numpy()[0] == 0.1


def test_argmax_still_reads_the_sign_bit_of_a_float32():
    assert made(lambda: layers.Lambda(lambda x: ops.argmax(x, -1)))[0].tolist() == [[3] * 3] * 2


def test_the_run_precision_is_left_alone():
    with precision.policy("float32"), promoted("float32") as places:
        assert ops.cast(X, "float32").dtype == tf.float32
        assert tf.constant(0.1).dtype == tf.float32
    assert places == []


def test_all_is_put_back():
    before = tf.cast, tf.constant, keras.src.backend.common.dtypes.PYTHON_DTYPES_MAP
    made(Norm)
    assert (tf.cast, tf.constant, keras.src.backend.common.dtypes.PYTHON_DTYPES_MAP) == before
    assert ops.cast(X, "float32").dtype == tf.float32


def test_attention_scales_exactly():
    layer, result = None, None
    with precision.policy("float64"), promoted("float64"):
        layer = layers.MultiHeadAttention(2, 3, use_bias=False)
        result = layer(X, X).numpy()
    query, key, value, output = (np.asarray(each.kernel) for each in parts(layer))
    q, k, v = (np.einsum("btd,dhk->bthk", X, kernel) for kernel in (query, key, value))
    scores = np.exp(np.einsum("bthk,bshk->bhts", q, k) / math.sqrt(3))
    scores /= scores.sum(-1, keepdims=True)
    mixed = np.einsum("bhts,bshk->bthk", scores, v)
    np.testing.assert_allclose(result, np.einsum("bthk,hkd->btd", mixed, output), rtol=1e-12, atol=1e-14)


def parts(attention):
    return attention.query_dense, attention.key_dense, attention.value_dense, attention.output_dense


def test_mixed_policies_are_those_of_the_float32_run():
    before = keras.config.dtype_policy()
    for at, dtype in (("float32", "float16"), ("float64", "float64")):
        with precision.policy(at), promoted(at) as places:
            keras.config.set_dtype_policy("mixed_float16")
            model = keras.Sequential([layers.Dense(2), layers.Dense(2, dtype="mixed_float16")])
            assert model(tf.ones((1, 2))).dtype == dtype
            assert {each.dtype for each in model.weights} == {at}
    assert places == ["build: policy mixed_float16"] and keras.config.dtype_policy() == before


DRAWS = {
    "normal": lambda: tf.random.normal((3,), tf.constant([0.5, 1.0, 1.5])),
    "gamma": lambda: tf.random.gamma((3,), tf.constant(0.5)),
    "poisson": lambda: tf.random.poisson((3,), 4.0),
    "truncated_normal": lambda: keras.random.truncated_normal((3,), seed=1),
    "beta": lambda: keras.random.beta((3,), 0.4, 0.4, seed=1),
    "generator": lambda: tf.random.Generator.from_seed(1).uniform((3,)),
    "categorical": lambda: tf.random.categorical(tf.zeros((1, 9)), 3),
    "integers": lambda: tf.random.uniform((3,), maxval=9, dtype=tf.int32),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_a_float32_run(name):
    """The second draw too, of a generator that has been asked as often."""
    tf.random.set_seed(1)
    low = [DRAWS[name](), DRAWS[name]()]
    tf.random.set_seed(1)
    with precision.policy("float64"), promoted("float64"):
        high = [DRAWS[name](), DRAWS[name]()]
    for a, b in zip(low, high, strict=True):
        assert b.dtype == (tf.float64 if a.dtype == tf.float32 else a.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("factor", "is_named"), [(0.9, True), (0.875, False), (0.5, False)])
def test_probabilities_of_float32_are_differentiated_by_their_sum(factor, is_named, compiled):
    """TensorFlow takes it for 1, and so it stays where float32 tells it from 1."""
    labels, logits = np.float32(factor) * np.eye(2, dtype="float32"), X[0, :2, :2]
    labels += np.float32((1 - factor) / 2) if factor > 0.5 else 0
    total, own = labels.sum(-1, keepdims=True, dtype="float64"), np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    with precision.policy("float64"), promoted("float64") as places:
        loss_of = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")

        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = loss_of(labels, x)
            return loss, tape.gradient(loss, x)

        loss, found = (tf.function(gradient) if compiled else gradient)(tf.constant(logits))
    np.testing.assert_allclose(loss, -(labels * np.log(own)).sum(), rtol=1e-14)
    np.testing.assert_allclose(found, own * (1 if factor == 0.5 else total) - labels, rtol=1e-12)
    named = ["loss: softmax_cross_entropy_with_logits of labels whose sum is 1 in float32"]
    assert [each for each in places if "labels" in each] == (named if is_named and not compiled else [])
    assert not is_named or abs(total - 1).max() > 1e-9
