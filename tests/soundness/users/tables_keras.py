"""Tables that Keras's builders compute or draw, kept as weights, as constants or as arrays."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops


def sinusoids(rows: int, dim: int, base: float = 10000.0, first: int = 0, exchanged: bool = False) -> np.ndarray:
    """Sines and cosines by turns."""
    angles = (np.arange(rows) + first)[:, None] / base ** (np.arange(0, dim, 2) / dim)
    parts = [np.sin(angles), np.cos(angles)]
    return np.stack(parts[::-1] if exchanged else parts, -1).reshape(rows, dim)


def positions_of(drawn: str, **kwargs: Any) -> np.ndarray:
    """`drawn`: which part of the table is random: "first", "last", "columns" or none of it."""
    if drawn == "first":
        return np.concatenate([np.random.randn(1, 8), sinusoids(5, 8, **kwargs)])
    if drawn == "last":
        return np.concatenate([sinusoids(4, 8, **kwargs), np.random.randn(2, 8)])
    if drawn == "columns":
        return np.concatenate([sinusoids(6, 4, **kwargs), np.random.randn(6, 4)], 1)
    return sinusoids(6, 8, **kwargs)


class Positions(keras.Model):
    """`kept`: as a weight, a constant of Keras's or an array."""

    def __init__(self, kept: str = "weight", drawn: str = "", **kwargs: Any):
        super().__init__()
        table = positions_of(drawn, **kwargs)
        if kept == "weight":
            self.table = self.add_weight(shape=(6, 8), trainable=False, name="table")
            self.table.assign(table)
        elif kept == "constant":
            self.table = ops.convert_to_tensor(table, keras.config.floatx())
        else:
            self.table = table.astype(keras.config.floatx())
        self.head = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(x + ops.cast(self.table, x.dtype))


class Initialized(keras.Model):
    """The table is an initializer's."""

    def __init__(self, drawn: str = "first", base: float = 10000.0):
        super().__init__()
        self.table = self.add_weight(
            shape=(6, 8),
            initializer=lambda shape, dtype: ops.cast(positions_of(drawn, base=base), dtype),
            trainable=False,
            name="table",
        )
        self.head = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(x + self.table)


class Frozen(keras.Model):
    """Positions as an embedding that is not trained."""

    def __init__(self, base: float = 10000.0):
        super().__init__()
        table = sinusoids(6, 8, base)
        self.positions = keras.layers.Embedding(
            6, 8, embeddings_initializer=lambda shape, dtype: ops.cast(table, dtype), trainable=False
        )
        self.head = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(x + self.positions(ops.arange(6)))


class Features(keras.Model):
    """Random Fourier features, by an initializer's name or object."""

    def __init__(self, initializer: Any, factor: float = 2 * math.pi):
        super().__init__()
        self.frequencies = self.add_weight(shape=(4, 16), initializer=initializer, trainable=False, name="frequencies")
        self.head = keras.layers.Dense(4)
        self.factor = factor

    def call(self, x: Any) -> Any:
        angles = self.factor * ops.matmul(x, self.frequencies)
        return self.head(ops.concatenate([ops.cos(angles), ops.sin(angles)], -1))


def features(deviation: float = 1.0, factor: float = 2 * math.pi) -> keras.Model:
    return Features(keras.initializers.RandomNormal(stddev=deviation), factor)


def features_glorot() -> keras.Model:
    """The initializer that add_weight has by default."""
    return Features("glorot_uniform")


def features_even(limit: float = 1.0) -> keras.Model:
    return Features(keras.initializers.RandomUniform(-limit, limit))


def features_signs() -> keras.Model:
    return Features(lambda shape, dtype: ops.cast(np.sign(np.random.randn(*shape)), dtype))


class Phases(keras.Model):
    def __init__(self, largest: float = 2 * math.pi):
        super().__init__()
        self.body, self.head = keras.layers.Dense(32), keras.layers.Dense(4)
        initializer = keras.initializers.RandomUniform(0, largest)
        self.phases = self.add_weight(shape=(32,), initializer=initializer, trainable=False, name="phases")

    def call(self, x: Any) -> Any:
        return self.head(ops.cos(self.body(x) + self.phases))


class Prototypes(keras.Model):
    """`zero`: the first of them is zero."""

    def __init__(self, zero: bool = True):
        super().__init__()
        self.body = keras.layers.Dense(6)
        self.prototypes = self.add_weight(shape=(5, 6), trainable=False, name="prototypes")
        drawn = np.random.randn(5, 6)
        self.prototypes.assign(drawn * (np.arange(5) > 0)[:, None] if zero else drawn)

    def call(self, x: Any) -> Any:
        return ops.matmul(self.body(x), ops.transpose(self.prototypes))


class Rotary(keras.Model):
    """`turns`: neighbours are rotated against each other, not halves."""

    def __init__(self, base: float = 10000.0, turns: bool = False):
        super().__init__()
        self.query, self.key = keras.layers.Dense(8), keras.layers.Dense(8)
        angles = np.arange(6)[:, None] / base ** (np.arange(0, 8, 2) / 8)
        self.angles = np.repeat(angles, 2, 1) if turns else np.concatenate([angles, angles], 1)
        self.turns = turns

    def rotated(self, x: Any) -> Any:
        if self.turns:
            pairs = ops.reshape(x, (-1, 6, 4, 2))
            turned = ops.reshape(ops.stack([-pairs[..., 1], pairs[..., 0]], -1), (-1, 6, 8))
        else:
            turned = ops.concatenate([-x[..., 4:], x[..., :4]], -1)
        return x * ops.cast(np.cos(self.angles), x.dtype) + turned * ops.cast(np.sin(self.angles), x.dtype)

    def call(self, x: Any) -> Any:
        return ops.matmul(self.rotated(self.query(x)), ops.transpose(self.rotated(self.key(x)), (0, 2, 1)))


class Window(keras.Model):
    """`transposed`: the index of query and key exchanged."""

    def __init__(self, transposed: bool = False):
        super().__init__()
        self.bias = self.add_weight(shape=(15,), name="bias")
        self.value = keras.layers.Dense(8)
        places = np.stack(np.meshgrid(np.arange(2), np.arange(3), indexing="ij")).reshape(2, 6)
        apart = places[:, :, None] - places[:, None]
        index = (apart[0] + 1) * 5 + apart[1] + 2
        self.index = index.T if transposed else index

    def call(self, x: Any) -> Any:
        scores = ops.matmul(x, ops.transpose(x, (0, 2, 1))) / math.sqrt(8)
        return ops.matmul(ops.softmax(scores + ops.take(self.bias, self.index)), self.value(x))


class Slopes(keras.Model):
    def __init__(self, step: float = 2.0):
        super().__init__()
        self.value = keras.layers.Dense(8)
        slopes = 2.0 ** (-step * np.arange(1, 5))
        apart = np.arange(6)[None] - np.arange(6)[:, None]
        self.biases = self.add_weight(shape=(4, 6, 6), trainable=False, name="biases")
        self.biases.assign(-abs(apart) * slopes[:, None, None])

    def heads(self, x: Any) -> Any:
        return ops.transpose(ops.reshape(x, (-1, 6, 4, 2)), (0, 2, 1, 3))

    def call(self, x: Any) -> Any:
        heads = self.heads(x)
        scores = ops.matmul(heads, ops.transpose(heads, (0, 1, 3, 2))) / math.sqrt(2) + self.biases
        mixed = ops.matmul(ops.softmax(scores), self.heads(self.value(x)))
        return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, 6, 8))


def slopes(step: float = 2.0) -> keras.Model:
    return Slopes(step)


def standard(squared: bool = True) -> keras.Model:
    """`squared`: the layer is given the variance that it asks for."""
    deviation = np.linspace(0.5, 2, 8)
    x = keras.Input((8,))
    layer = keras.layers.Normalization(mean=np.linspace(-1, 1, 8), variance=deviation**2 if squared else deviation)
    return keras.Model(x, keras.layers.Dense(4)(layer(x)))


class Cosines(keras.Model):
    def __init__(self, orthonormal: bool = True):
        super().__init__()
        basis = np.cos(math.pi / 8 * (np.arange(8) + 0.5) * np.arange(8)[:, None]) / 2
        if orthonormal:
            basis[0] /= math.sqrt(2)
        self.basis = self.add_weight(shape=(8, 8), trainable=False, name="basis")
        self.basis.assign(basis)
        self.head = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(ops.matmul(x, ops.transpose(self.basis)))


class Hann(keras.Model):
    """`periodic`: as torch's window is by default, and NumPy's is not."""

    def __init__(self, periodic: bool = True):
        super().__init__()
        self.window = np.hanning(9)[:8] if periodic else np.hanning(8)
        self.head = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(x * ops.cast(self.window, x.dtype))


class Mixed(keras.Model):
    def __init__(self, seed: int = 0):
        super().__init__()
        generator = np.random.RandomState(seed)
        self.order = generator.permutation(8)
        self.signs = generator.choice([-1.0, 1.0], 8)
        self.head = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(ops.take(x, self.order, 1) * ops.cast(self.signs, x.dtype))


def mixed(seed: int = 0) -> keras.Model:
    return Mixed(seed)
