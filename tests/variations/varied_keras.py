"""The Keras halves of tests/test_variations.py; `NAME_wrong` differs from torch's where its inputs do not go."""

import keras
from keras import ops


class Applied(keras.layers.Layer):
    """A function of one tensor as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, *args, training=False):
        return self.function(*args)


def _between(*middle):
    return keras.Sequential([keras.layers.Dense(5), *middle, keras.layers.Dense(3)])


def clamped():
    return _between(keras.layers.ReLU(max_value=6.0))


def clamped_wrong():
    return _between(keras.layers.ReLU())


def slanted():
    return _between(keras.layers.LeakyReLU())


def shrunk_wrong():
    return _between(Applied(lambda x: ops.where(ops.abs(x) < 2, x, ops.soft_shrink(x, 2.0))))


def _normalized(x, offset):
    norm = ops.sqrt(ops.sum(x * x, axis=-1, keepdims=True))
    return x / ops.maximum(norm, 1e-12) + offset * ops.cast(norm == 0, x.dtype)


def normalized_wrong():
    return keras.Sequential([Applied(lambda x: _normalized(x, 0.5)), keras.layers.Dense(3)])


class Masked(keras.Model):
    def __init__(self, filled):
        super().__init__()
        self.fc, self.filled = keras.layers.Dense(3), filled

    def call(self, x, keep, training=False):
        return self.fc(ops.where(keep, x, 0.5) if self.filled else x)


def masked():
    return Masked(True)


def masked_wrong():
    return Masked(False)


class Pooled(keras.Model):
    def __init__(self, masked):
        super().__init__()
        self.embed, self.fc, self.masked = keras.layers.Embedding(20, 6), keras.layers.Dense(3), masked

    def call(self, ids, training=False):
        x = self.embed(ids)
        if not self.masked:
            return self.fc(ops.mean(x, axis=1))
        mask = ops.cast(ops.expand_dims(ids != 0, -1), x.dtype)
        return self.fc(ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1))


def padded_wrong():
    return Pooled(False)


class Squeezed(keras.Model):
    def __init__(self, axis):
        super().__init__()
        self.fc, self.axis = keras.layers.Dense(1), axis

    def call(self, x, training=False):
        return ops.squeeze(self.fc(x), axis=self.axis)


def squeezed_wrong():
    return Squeezed(None)


def fixed():
    return _between(keras.layers.Activation("tanh"))


def fixed_wrong():
    return _between(Applied(lambda x: ops.tanh(ops.reshape(x, (4, 5)))))


class Counting(keras.Model):
    """Doubles its outputs from its second call on; the calls that only make its weights do not count."""

    def __init__(self):
        super().__init__()
        self.fc, self.calls = keras.layers.Dense(3), 0

    def call(self, x, training=False):
        self.calls += 1
        return self.fc(x) * (1 + (self.calls > 1))


def counting_wrong():
    return Counting()


class Positions(keras.Model):
    def __init__(self, most):
        super().__init__()
        self.embed, self.places = keras.layers.Embedding(20, 6), keras.layers.Embedding(32, 6)
        self.most = most

    def call(self, ids, training=False):
        return ops.tanh(self.embed(ids) + self.places(ops.minimum(ops.arange(ids.shape[1]), self.most)))


def positions_wrong():
    return Positions(7)


def dropping_wrong():
    return _between(keras.layers.Dropout(0.5))


def plain():
    return _between()


def dropping():
    return _between(keras.layers.Dropout(0.25))


def dropping_gauss():
    return _between(keras.layers.GaussianDropout(0.25))


def dropping_exchanged():
    return _between(keras.layers.Dropout(0.5), keras.layers.Activation("tanh"), keras.layers.Dropout(0.25))


def fixed_noisy():
    return _between(keras.layers.Activation("tanh"), keras.layers.GaussianNoise(1.0))


class Last(keras.Model):
    def __init__(self, most):
        super().__init__()
        self.embed, self.fc, self.most = keras.layers.Embedding(20, 6), keras.layers.Dense(3), most

    def call(self, ids, training=False):
        full = ops.cast(ops.all(ids == self.most, axis=1, keepdims=True), "float64")
        out = self.fc(ops.mean(self.embed(ids), axis=1))
        return out + ops.cast(full, out.dtype)


def last_wrong():
    return Last(19)


def batch_norm():
    norm = keras.layers.BatchNormalization(momentum=0.5, epsilon=1e-5)
    return keras.Sequential([keras.layers.Dense(5), norm, keras.layers.Dense(3)])


def noisy():
    return _between(keras.layers.GaussianNoise(1.0))


def _edges(x):
    """Without torch's clamp, and without its NaN at zeros."""
    return x / ops.maximum(ops.sum(ops.abs(x), axis=-1, keepdims=True), 1e-12) + ops.exp(x * 2)


def edges_wrong():
    return keras.Sequential([Applied(_edges), keras.layers.Dense(3)])


class TwoBranches(keras.Model):
    def __init__(self):
        super().__init__()
        self.left, self.right = keras.layers.Dense(3, name="left"), keras.layers.Dense(3, name="right")
        self.some, self.more = keras.layers.Dropout(0.25), keras.layers.Dropout(0.5)

    def call(self, x, training=False):
        right = self.more(self.right(x), training=training)
        return self.some(self.left(x), training=training) - right


def two_branches():
    return TwoBranches()


class Centred(keras.layers.Layer):
    def __init__(self, samples):
        super().__init__()
        self.samples = samples

    def call(self, x, training=False):
        return x - ops.sum(x, axis=0) / (self.samples or ops.shape(x)[0]) if training else x


def centred(samples=None):
    return keras.Sequential([keras.layers.Dense(4), Centred(samples), keras.layers.Dense(3)])


def centred_wrong():
    return centred(samples=4)


def rows_wrong():
    ids = keras.Input((8,), dtype="int32")
    x = ops.sum(ops.tanh(keras.layers.Embedding(20, 4)(ids)), axis=1)
    return keras.Model(ids, keras.layers.Dense(3)(x))
