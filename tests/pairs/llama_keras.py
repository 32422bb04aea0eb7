"""The same; the feed-forward net's two branches are called the other way round, and rotary tables are made anew."""

import keras
from keras import layers, ops


class RootMeanSquare(layers.Layer):
    def __init__(self, epsilon: float, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones", name="scale")

    def call(self, x):
        wide = ops.cast(x, "float32")
        wide = wide * ops.rsqrt(ops.mean(ops.square(wide), -1, keepdims=True) + self.epsilon)
        return ops.cast(wide, x.dtype) * self.scale


class GroupedAttention(layers.Layer):
    def __init__(self, dim: int, heads: int, groups: int, **kwargs):
        super().__init__(**kwargs)
        self.size, self.copies = dim // heads, heads // groups
        self.query = layers.EinsumDense("bsd,dhk->bshk", (None, heads, self.size), name="query")
        self.key = layers.EinsumDense("bsd,dhk->bshk", (None, groups, self.size), name="key")
        self.value = layers.EinsumDense("bsd,dhk->bshk", (None, groups, self.size), name="value")
        self.attention_output = layers.EinsumDense("bshk,hkd->bsd", (None, dim), name="attention_output")

    def call(self, x):
        query, key = rotated(self.query(x)), rotated(self.key(x))
        key, value = (ops.repeat(y, self.copies, axis=2) for y in (key, self.value(x)))
        scores = ops.einsum("bqhk,bshk->bhqs", query, key) / ops.sqrt(ops.cast(self.size, x.dtype))
        causal = ops.tril(ops.ones(scores.shape[-2:], dtype="bool"))
        weights = ops.softmax(ops.where(causal, scores, -1e9))
        return self.attention_output(ops.einsum("bhqs,bshk->bqhk", weights, value))


def rotated(x):
    size = x.shape[-1]
    frequencies = 100.0 ** -(ops.arange(0, size, 2, dtype="float32") / size)
    angles = ops.outer(ops.arange(x.shape[1], dtype="float32"), frequencies)
    angles = ops.tile(angles, (1, 2))[:, None, :]
    cos, sin = ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)
    first, second = ops.split(x, 2, axis=-1)
    return x * cos + ops.concatenate([-second, first], axis=-1) * sin


class DecoderLayer(layers.Layer):
    def __init__(self, dim: int, heads: int, groups: int, inner: int, epsilon: float, swapped: bool, **kwargs):
        super().__init__(**kwargs)
        self.swapped = swapped
        self.attention_norm = RootMeanSquare(epsilon, name="attention_norm")
        self.attention = GroupedAttention(dim, heads, groups, name="attention")
        self.feedforward_norm = RootMeanSquare(2.0**-17, name="feedforward_norm")
        self.up = layers.Dense(inner, use_bias=False, name="feedforward_intermediate")
        self.gate = layers.Dense(inner, use_bias=False, name="feedforward_gate")
        self.down = layers.Dense(dim, use_bias=False, name="feedforward_output")

    def call(self, x):
        x = x + self.attention(self.attention_norm(x))
        normed = self.feedforward_norm(x)
        up, gate = self.up(normed), self.gate(normed)
        return x + self.down(ops.silu(up) * gate if self.swapped else up * ops.silu(gate))


class Decoder(keras.Model):
    def __init__(self, words: int, dim: int, heads: int, groups: int, inner: int, epsilon: float, swapped: bool):
        super().__init__()
        self.token_embedding = layers.Embedding(words, dim, name="token_embedding")
        sizes = dim, heads, groups, inner
        self.first = DecoderLayer(*sizes, epsilon, False, name="decoder_layer_0")
        self.second = DecoderLayer(*sizes, 2.0**-17, swapped, name="decoder_layer_1")
        self.output_norm = RootMeanSquare(2.0**-17, name="output_norm")

    def call(self, token_ids):
        return self.output_norm(self.second(self.first(self.token_embedding(token_ids))))


def build(
    words: int, dim: int, heads: int, groups: int, inner: int, swapped: bool = False, epsilon: float = 2.0**-17
) -> keras.Model:
    return Decoder(words, dim, heads, groups, inner, epsilon, swapped)
