"""The same with three Dense layers, and attention by hand."""

import keras
from keras import layers, ops


class Attention(layers.Layer):
    def __init__(self, dim: int, heads: int, scale: float, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.scale = heads, scale
        self.query, self.key, self.value = (layers.Dense(dim, name=name) for name in ("query", "key", "value"))
        self.output_dense = layers.Dense(dim, name="output")

    def call(self, x):
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        weights = ops.softmax(ops.einsum("bnhd,bmhd->bhnm", query, key) * self.scale)
        return self.output_dense(ops.reshape(ops.einsum("bhnm,bmhd->bnhd", weights, value), ops.shape(x)))

    def split(self, x):
        return ops.reshape(x, (*x.shape[:2], self.heads, x.shape[2] // self.heads))


class Net(keras.Model):
    def __init__(self, dim: int, heads: int, scale: float):
        super().__init__()
        self.embedding = layers.Dense(dim, name="embedding")
        self.attention = Attention(dim, heads, scale, name="attention")
        self.classifier = layers.Dense(4, name="classifier")

    def call(self, patches):
        x = self.embedding(patches)
        return self.classifier(x + self.attention(x))


def build(dim: int, heads: int, scale: float = 0.25) -> keras.Model:
    return Net(dim, heads, scale)
