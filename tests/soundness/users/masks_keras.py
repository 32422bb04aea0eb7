"""What is masked in Keras: by masks that layers hand on unasked, by arguments and their defaults. Word 0 is padding."""

import math
from typing import Any

import keras
import numpy as np
from keras import layers, ops

LOW = -1e9


class Words(keras.Model):
    """`mask_zero`: the embedding's mask reaches the pooling. `lost`: by a function that drops it."""

    def __init__(self, mask_zero: bool = True, lost: bool = False):
        super().__init__()
        self.embedding = layers.Embedding(6, 8, mask_zero=mask_zero)
        self.body = layers.Dense(8)
        self.pooling = layers.GlobalAveragePooling1D()
        self.head = layers.Dense(3)
        self.activation = ops.tanh if lost else layers.Activation("tanh")

    def call(self, ids: Any) -> Any:
        return self.head(self.pooling(self.activation(self.body(self.embedding(ids)))))


def words_functional() -> keras.Model:
    ids = keras.Input((5,), dtype="int64")
    hidden = layers.Dense(8, activation="tanh")(layers.Embedding(6, 8, mask_zero=True)(ids))
    return keras.Model(ids, layers.Dense(3)(layers.GlobalAveragePooling1D()(hidden)))


class First(layers.Layer):
    """Puts a vector of its own before the words, and says nothing of masks."""

    def build(self, shape: Any) -> None:
        self.first = self.add_weight(shape=(8,), name="first")

    def call(self, x: Any) -> Any:
        return ops.concatenate([ops.broadcast_to(self.first, (ops.shape(x)[0], 1, 8)), x], 1)


class FirstMasked(First):
    """And says that it is a word."""

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        return None if mask is None else ops.pad(mask, ((0, 0), (1, 0)), constant_values=True)


class Classed(keras.Model):
    def __init__(self, masked: bool = True):
        super().__init__()
        self.first = FirstMasked() if masked else First()
        self.embedding = layers.Embedding(6, 8, mask_zero=True)
        self.body = layers.Dense(8, activation="tanh")
        self.head = layers.Dense(3)
        self.pooling = layers.GlobalAveragePooling1D()

    def call(self, ids: Any) -> Any:
        return self.head(self.pooling(self.first(self.body(self.embedding(ids)))))


class Padded(keras.Model):
    """No row of an embedding is left out of the training. `pooled`: the mean leaves padding out."""

    def __init__(self, pooled: bool = False):
        super().__init__()
        self.embedding, self.head = layers.Embedding(6, 8), layers.Dense(3)
        self.pooled = pooled

    def call(self, ids: Any) -> Any:
        hidden = self.embedding(ids) + 0.5
        if not self.pooled:
            return self.head(ops.mean(hidden, 1))
        valid = ops.expand_dims(ops.cast(ids != 0, hidden.dtype), -1)
        return self.head(ops.sum(hidden * valid, 1) / ops.maximum(ops.sum(valid, 1), 1))


def band(future: int, past: int) -> np.ndarray:
    apart = np.arange(5)[None] - np.arange(5)[:, None]
    return (apart <= future) & (apart >= -past)


LOWER = np.tril(np.ones((5, 5), bool))


class Attention(keras.Model):
    """`future`: how far a query sees ahead; `past`: how far it sees back."""

    def __init__(self, future: int = 0, past: int = 10):
        super().__init__()
        self.query, self.key, self.value = (layers.Dense(8) for _ in range(3))
        self.allowed = band(future, past)

    def scores(self, x: Any) -> Any:
        return ops.matmul(self.query(x), ops.transpose(self.key(x), (0, 2, 1))) / math.sqrt(8)

    def attend(self, x: Any, allowed: Any) -> Any:
        return ops.matmul(ops.softmax(ops.where(allowed, self.scores(x), LOW)), self.value(x))

    def call(self, x: Any) -> Any:
        return self.attend(x, self.allowed)


class ByDefault(Attention):
    """The mask is an argument's default, which no caller gives."""

    def call(self, x: Any, allowed: Any = LOWER) -> Any:
        return self.attend(x, allowed)


class ByTransposedDefault(Attention):
    def call(self, x: Any, allowed: Any = LOWER.T) -> Any:
        return self.attend(x, allowed)


class ByNoDefault(Attention):
    def call(self, x: Any, mask: Any = None) -> Any:
        return self.attend(x, True if mask is None else mask)


class Keyed(Attention):
    """`inverted`: True is taken for what may not be seen, as torch's key_padding_mask has it."""

    def __init__(self, inverted: bool = False):
        super().__init__()
        self.inverted = inverted

    def call(self, inputs: Any) -> Any:
        mask = inputs["mask"][:, None]
        return self.attend(inputs["x"], ops.logical_not(mask) if self.inverted else mask)


class Selfish(Attention):
    """By Keras's own softmax layer."""

    def __init__(self):
        super().__init__()
        self.softmax = layers.Softmax()

    def call(self, inputs: Any) -> Any:
        x, mask = inputs["x"], inputs["mask"]
        allowed = ops.logical_or(mask[:, None], np.eye(5, dtype=bool))
        return ops.matmul(self.softmax(self.scores(x), mask=allowed), self.value(x))


class Heads(keras.Model):
    """Keras's attention over words, which finds their mask by itself."""

    def __init__(self, mask_zero: bool = True, causal: bool = False, pooled: bool = False):
        super().__init__()
        self.embedding = layers.Embedding(6, 8, mask_zero=mask_zero)
        self.attention = layers.MultiHeadAttention(2, 4)
        self.causal, self.pooled = causal, pooled

    def call(self, ids: Any) -> Any:
        x = self.embedding(ids)
        mixed = self.attention(x, x, use_causal_mask=self.causal)
        if not self.pooled:
            return mixed
        valid = ops.expand_dims(ops.cast(ids != 0, mixed.dtype), -1)
        return ops.sum(mixed * valid, 1) / ops.sum(valid, 1)


def recurrent(mask_zero: bool = True) -> keras.Model:
    ids = keras.Input((5,), dtype="int64")
    embedded = layers.Embedding(6, 8, mask_zero=mask_zero)(ids)
    return keras.Model(ids, layers.Dense(3)(layers.SimpleRNN(6, use_bias=False)(embedded)))


class LostRecurrent(keras.Model):
    """The mask is lost before the cell."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(6, 8, mask_zero=True)
        self.cell, self.head = layers.SimpleRNN(6, use_bias=False), layers.Dense(3)

    def call(self, ids: Any) -> Any:
        return self.head(self.cell(ops.multiply(self.embedding(ids), 1.0)))


class Both(keras.Model):
    def __init__(self, masked: bool = True):
        super().__init__()
        self.cell = layers.Bidirectional(layers.SimpleRNN(6, use_bias=False))
        self.head = layers.Dense(3)
        self.masked = masked

    def call(self, inputs: Any) -> Any:
        lengths = ops.maximum(ops.cast(inputs["lengths"], "int32"), 1)
        mask = ops.arange(5, dtype="int32")[None] < ops.expand_dims(lengths, 1)
        return self.head(self.cell(inputs["x"], mask=mask if self.masked else None))


class Normed(keras.Model):
    """The norm takes its statistics over what the embedding's mask leaves."""

    def __init__(self, mask_zero: bool = True):
        super().__init__()
        self.embedding = layers.Embedding(6, 8, mask_zero=mask_zero)
        self.norm = layers.BatchNormalization(momentum=0.75, center=False, scale=False)
        self.head = layers.Dense(3)

    def call(self, ids: Any, training: bool = False) -> Any:
        return self.head(self.norm(self.embedding(ids), training=training))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        return ops.mean(ops.square(y - y_pred))


class Multiplied(Attention):
    """`renormed`: the chances that are left add up to one again."""

    def __init__(self, renormed: bool = True):
        super().__init__()
        self.renormed = renormed

    def call(self, x: Any) -> Any:
        chances = ops.softmax(self.scores(x)) * ops.cast(self.allowed, x.dtype)
        if self.renormed:
            chances = chances / ops.sum(chances, -1, keepdims=True)
        return ops.matmul(chances, self.value(x))


class Dotted(keras.Model):
    """Keras's dot-product attention, which finds the masks of queries and values by itself."""

    def __init__(self, mask_zero: bool = True):
        super().__init__()
        self.embedding = layers.Embedding(6, 8, mask_zero=mask_zero)
        self.attention, self.head = layers.Attention(), layers.Dense(3)

    def call(self, ids: Any) -> Any:
        x = self.embedding(ids)
        return self.head(self.attention([x, x]))


class Mean(layers.Layer):
    """Has an optional mask, which Keras fills in with the embedding's."""

    def call(self, x: Any, mask: Any = None) -> Any:
        if mask is None:
            return ops.mean(x, 1)
        valid = ops.expand_dims(ops.cast(mask, x.dtype), -1)
        return ops.sum(x * valid, 1) / ops.sum(valid, 1)


class FilledIn(keras.Model):
    def __init__(self, mask_zero: bool = True):
        super().__init__()
        self.embedding = layers.Embedding(6, 8, mask_zero=mask_zero)
        self.body, self.head = layers.Dense(8, activation="tanh"), layers.Dense(3)
        self.mean = Mean()

    def call(self, ids: Any) -> Any:
        return self.head(self.mean(self.body(self.embedding(ids))))
