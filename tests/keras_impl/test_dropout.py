"""Dropout by shared masks: bit by bit those of parity.core.random, in the recorder in every layer that drops."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_impl.dropout import Key, dropout, keep, number
from keras_impl.models.transformer import MultiheadAttention
from keras_impl.record.masks import Masks
from parity.core import random
from parity.core.errors import UsageError

SHAPES = [(), (7,), (5, 4, 12), (2, 3, 5, 5)]


def key(step: int, call: int) -> Key:
    return Key(*(tf.constant(value, tf.int64) for value in (random.mask_key(3, "a.b", 1), step, call)))


@pytest.mark.parametrize("shape", [*SHAPES[:2], *(pytest.param(shape, marks=pytest.mark.slow) for shape in SHAPES[2:])])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.999])
def test_masks_are_the_sources(shape, rate):
    def kept(x: tf.Tensor) -> tf.Tensor:
        return keep(number(x), rate, key(4, 2))

    expected = random.keep(3, "a.b", 1, 4, 2, shape, rate)
    unknown = tf.function(kept, input_signature=[tf.TensorSpec([None] * len(shape))], autograph=False)
    for draw in (kept, tf.function(kept, autograph=False), unknown):
        assert np.array_equal(draw(tf.zeros(shape)).numpy(), expected)


def test_axes_in_another_order_and_parts():
    expected = random.keep(3, "a.b", 1, 0, 0, (5, 4, 12), 0.5).transpose(1, 0, 2)
    x = tf.zeros((4, 5, 12))
    assert np.array_equal(keep(number(x, (1, 0, 2)), 0.5, key(0, 0)).numpy(), expected)
    part = number(x[..., 5:9], (1, 0, 2), 5, 12)
    assert np.array_equal(keep(part, 0.5, key(0, 0)).numpy(), expected[..., 5:9])


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32, tf.bfloat16, tf.float16])
@pytest.mark.parametrize("rate", [0.1, 0.37, 1.0])
def test_what_stays_is_scaled_once_rounded(dtype, rate):
    x = tf.cast(tf.linspace(-3.0, 3.0, 40), dtype)
    kept = random.keep(3, "a.b", 1, 0, 0, (40,), rate)
    scale = np.asarray(0.0 if rate == 1.0 else 1 / (1 - rate), dtype.as_numpy_dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        dropped = dropout(x, number(x), rate, key(0, 0))
    assert dropped.dtype == dtype
    assert np.array_equal(dropped.numpy(), x.numpy() * (kept.astype(scale.dtype) * scale))
    assert np.array_equal(tape.gradient(dropped, x).numpy() != 0, kept)


class Model(keras.Model):
    """Layers that drop, Keras's own attention among them."""

    def __init__(self):
        super().__init__()
        self.drop = keras.layers.Dropout(0.3, name="drop")
        self.attention = keras.layers.MultiHeadAttention(2, 4, dropout=0.3, name="attention")

    def build(self, shape: tuple) -> None:
        self.attention.build(shape, shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        x = self.drop(x, training=training)
        return self.attention(x, x, training=training)


def by_hand(model: Model, x: np.ndarray, step: int, call: int) -> np.ndarray:
    """The same from NumPy's masks; attention written out."""
    kept = random.keep(5, "drop", 0, step, call, (6, 3, 8), 0.3)  # in PyTorch's order of axes
    x = x * kept.transpose(1, 0, 2) / 0.7
    layers = (model.attention.query_dense, model.attention.key_dense, model.attention.value_dense)
    q, k, v = (np.einsum("ntd,dhk->nhtk", x, np.asarray(layer.kernel)) for layer in layers)
    scores = np.exp(np.einsum("nhtk,nhsk->nhts", q, k) / 2)
    weights = scores / scores.sum(-1, keepdims=True)
    weights = weights * random.keep(5, "attention", 0, step, call, weights.shape, 0.3) / 0.7
    return np.einsum("nhts,nhsk,hkd->ntd", weights, v, np.asarray(model.attention.output_dense.kernel))


@pytest.mark.parametrize("eager", [True, False])
def test_a_users_model_drops_by_shared_masks(eager):
    model, masks = Model(), Masks(5, {3: "n t d -> t n d"})
    model.build((3, 6, 8))
    masks.attach(model, 0)
    x = tf.random.normal((3, 6, 8))

    def two(x: tf.Tensor) -> list[tf.Tensor]:
        return [model(x, training=True) for _ in range(2)]

    step_of_two = two if eager else tf.function(two)
    for step in range(2):
        for call, outputs in enumerate(step_of_two(x)):
            assert np.allclose(outputs, by_hand(model, x.numpy(), step, call), atol=1e-5)
        masks.on_step()
    assert np.array_equal(model(x), model(x))


def test_a_function_traced_anew_within_a_step_draws_the_same():
    layer = keras.Sequential([keras.layers.Dropout(0.5, name="drop")])
    masks = Masks(0, {})
    masks.attach(layer, 0)
    first, second = (tf.function(lambda x: layer(x, training=True)) for _ in range(2))
    assert np.array_equal(first(tf.ones((4, 9))), second(tf.ones((4, 9))))


class Inner(keras.layers.Layer):
    """Calls a layer that others call too, its input by name."""

    def __init__(self, drop: keras.layers.Layer, name: str):
        super().__init__(name=name)
        self.drop = drop

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.drop(inputs=x, training=training)


def test_a_layer_in_several_places_has_its_first_name():
    drop = keras.layers.Dropout(0.5, name="drop")
    model = keras.Sequential([Inner(drop, "one"), Inner(drop, "two")])
    Masks(0, {}).attach(model, 0)
    kept = [random.keep(0, "one.drop", 0, 0, call, (4, 90), 0.5) for call in (0, 1)]
    assert np.array_equal(model(tf.ones((4, 90)), training=True).numpy() != 0, kept[0] & kept[1])


def test_grouped_attention_drops_by_shared_masks():
    attention = keras.layers.GroupQueryAttention(4, 4, 2, dropout=0.5, name="attention")
    x = tf.ones((3, 6, 8))
    attention(x, x)
    layer = keras.layers.Layer()
    layer.attention = attention
    Masks(0, {4: "n h w c -> n c h w"}).attach(layer, 0)
    kept = random.keep(0, "attention", 0, 0, 0, (3, 4, 6, 6), 0.5)
    dropped = attention._dropout_layer(tf.ones((3, 4, 6, 6)), training=True)
    assert np.array_equal(dropped.numpy() != 0, kept)


def test_the_dropout_inside_the_ports_attention_has_its_name():
    attention = MultiheadAttention(8, 2, 0.5, name="self_attn")
    attention.build((3, 6, 8), (3, 6, 8))
    layer = keras.layers.Layer()
    layer.self_attn = attention
    Masks(0, {}).attach(layer, 0)
    kept = random.keep(0, "self_attn", 0, 0, 0, (3, 2, 6, 6), 0.5)
    assert np.array_equal(attention.dropout(tf.ones((3, 2, 6, 6)), training=True).numpy() != 0, kept)


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.SpatialDropout1D(0.1),
        keras.layers.GaussianDropout(0.1),
        keras.layers.AlphaDropout(0.1),
        keras.layers.Dropout(0.1, noise_shape=(None, 1)),
        keras.layers.LSTM(3, dropout=0.1),
        keras.layers.GRU(3, recurrent_dropout=0.1),
        keras.layers.RNN(keras.layers.LSTMCell(3, dropout=0.1)),
        keras.layers.Attention(dropout=0.1),
        keras.layers.AdditiveAttention(dropout=0.1),
    ],
)
def test_other_kinds_are_refused(layer):
    with pytest.raises(UsageError, match=r"masks shared by both frameworks are available for keras\.layers\.Dropout"):
        Masks(0, {}).attach(keras.Sequential([layer]), 0)


def test_a_recurrent_layer_without_dropout_is_taken():
    Masks(0, {}).attach(keras.Sequential([keras.layers.LSTM(3)]), 0)
