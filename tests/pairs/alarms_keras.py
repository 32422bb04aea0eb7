"""The counterparts of alarms_torch.py: each right, and with faults that are much like what is right."""

import keras
import numpy as np
from keras import layers, ops


class Auxiliary(keras.Model):
    def __init__(self, factor=0.5):
        super().__init__()
        self.a, self.b, self.head = layers.Dense(8), layers.Dense(8), layers.Dense(4)
        self.factor = factor

    def call(self, x, training=False):
        h = ops.tanh(self.a(x))
        y = self.head(ops.tanh(self.b(h)))
        return y + self.factor * self.head(h) if training else y


class Averaged(keras.Model):
    def __init__(self, decay=0.9):
        super().__init__()
        self.a, self.aside, self.head = layers.Dense(8), layers.Dense(4), layers.Dense(4)
        self.mean, self.decay = layers.Dense(4, trainable=False), decay

    def build(self, shape):
        for layer in (self.head, self.mean):
            layer.build((*shape[:-1], 8))
        self.mean.set_weights(self.head.get_weights())

    def call(self, x, training=False):
        h = ops.tanh(self.a(x))
        if not training:
            return self.mean(h)
        for mean, weight in zip(self.mean.weights, self.head.weights, strict=True):
            mean.assign(self.decay * mean + (1 - self.decay) * weight)
        return self.head(h) + self.aside(h)


class Table(keras.Model):
    def __init__(self, trainable=True, power=1):
        super().__init__()
        self.a, self.b, self.power = layers.Dense(8), layers.Dense(4), power
        values = np.linspace(0.5, 2.0, 8)
        self.scale = self.add_weight(
            shape=(8,), name="scale", trainable=trainable, initializer=lambda shape, dtype=None: ops.cast(values, dtype)
        )

    def call(self, x):
        return self.b(self.a(x) * self.scale**self.power)


class Scaled(keras.Model):
    def __init__(self, shift=0.0):
        super().__init__()
        self.scaled, self.norm, self.shift = layers.Dense(8), layers.LayerNormalization(epsilon=1e-5), shift
        self.a, self.b = layers.Dense(8), layers.Dense(8)

    def call(self, x):
        h = 4.0 * self.scaled(x)
        return h + self.b(ops.tanh(self.a(self.norm(h)) + self.shift))


class Unused(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.norm = layers.Dense(8), layers.LayerNormalization(epsilon=1e-5)
        self.b, self.extra = layers.Dense(4), layers.Dense(3)

    def call(self, x):
        h = self.norm(self.a(x))
        return {"y": self.b(h), "extra": self.extra(h)}


class Attention(layers.Layer):
    """Its projections keep the heads as an axis of their own."""

    def __init__(self, fault=""):
        super().__init__()
        self.q, self.k, self.v = (layers.EinsumDense("abc,cde->abde", (None, 4, 4), bias_axes="de") for _ in range(3))
        self.out, self.fault = layers.EinsumDense("abcd,cde->abe", (None, 16), bias_axes="e"), fault

    def call(self, x):
        q, k, v = (ops.transpose(layer(x), (0, 2, 1, 3)) for layer in (self.q, self.k, self.v))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * (0.25 if self.fault == "scale" else 0.5)
        if self.fault == "mask":
            scores = ops.where(ops.tril(ops.ones(scores.shape[2:], "bool")), scores, -1e9)
        return self.out(ops.transpose(ops.matmul(ops.softmax(scores), v), (0, 2, 1, 3)))


class Part(layers.Layer):
    def __init__(self, inner, fault=""):
        super().__init__()
        self.norm, self.inner, self.fault = layers.LayerNormalization(epsilon=1e-5), inner, fault

    def call(self, x):
        y = self.inner(self.norm(x))
        return y if self.fault == "shortcut" else x + y


class Block(layers.Layer):
    def __init__(self, fault="", act="gelu"):
        super().__init__()
        self.part, self.norm = Part(Attention(fault), fault), layers.LayerNormalization(epsilon=1e-5)
        self.up, self.act, self.down, self.fault = layers.Dense(32), layers.Activation(act), layers.Dense(16), fault

    def call(self, x):
        given, x = x, self.part(x)
        y = self.down(self.act(self.up(self.norm(given if self.fault == "input" else x))))
        if self.fault == "backward":
            y = 0.999 * y + ops.stop_gradient(0.001 * y)
        return x + y


class Blocks(keras.Model):
    def __init__(self, fault="", gelu=True):
        super().__init__()
        act = "gelu" if gelu else "silu"
        self.first, self.second, self.head = Block(act=act), Block(fault, act=act), layers.Dense(4)

    def call(self, x):
        return self.head(self.second(self.first(x)))


class Dropouts(keras.Model):
    def __init__(self, fault=""):
        super().__init__()
        seed = 7 if "seeds" in fault else None
        self.a, self.first, self.b = layers.Dense(64), layers.Dropout(0.25, seed=seed), layers.Dense(64)
        self.second, self.c = layers.Dropout(0.25, seed=seed), layers.Dense(4)
        self.fault = fault

    def call(self, x, training=False):
        h = ops.tanh(self.a(x))
        if self.fault == "extra" and training:
            keras.random.dropout(h, 0.25, seed=keras.random.SeedGenerator(1))
        h = self.first(h, training=training)
        y = self.c(self.second(ops.tanh(self.b(h)), training=training))
        return ops.clip(y, -0.3, 0.3) if self.fault == "seeds, clipped" else y


class Decoder(keras.Model):
    def __init__(self, fault=""):
        super().__init__()
        drop = layers.Dropout if fault == "elements" else layers.SpatialDropout2D
        self.a, self.image, self.drop = layers.Dense(16 * 3 * 3), layers.Reshape((3, 3, 16)), drop(0.25)
        self.grouped, self.up = layers.Conv2D(16, 3, padding="same", groups=4), layers.Conv2DTranspose(4, 2, 2)
        self.fault = fault

    def call(self, x, training=False):
        h = ops.tanh(self.grouped(self.image(ops.tanh(self.a(x)))))
        h = self.up(self.drop(h, training=training))
        return ops.mean(h if self.fault == "linear" else ops.tanh(h), (1, 2))


class Seen(keras.Model):
    def __init__(self, rate=0.25):
        super().__init__()
        self.patches, self.attention = layers.Conv2D(8, 2, 2), layers.MultiHeadAttention(2, 4, dropout=0.25)
        self.query, self.key, self.drop = layers.Dense(8), layers.Dense(8), layers.Dropout(rate)
        self.head = layers.Dense(4)

    def call(self, x, training=False):
        x = ops.reshape(self.patches(x), (-1, 9, 8))
        x = x + self.attention(x, x, training=training)
        query, key, value = (
            ops.transpose(ops.reshape(each, (-1, 9, 2, 4)), (0, 2, 1, 3)) for each in (self.query(x), self.key(x), x)
        )
        weights = ops.softmax(query @ ops.transpose(key, (0, 1, 3, 2)), -1)
        mixed = self.drop(weights, training=training) @ value
        return self.head(ops.mean(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, 9, 8)), 1))


class Plain(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = layers.Dense(8), layers.Dense(4)

    def call(self, x):
        return self.b(ops.tanh(self.a(x)))


class Adaptive(keras.optimizers.Optimizer):
    """Keeps sums where torch's keeps means, under names that other optimizers have."""

    def __init__(self, beta=0.99):
        super().__init__(learning_rate=0.01)
        self.beta = beta

    def build(self, variables):
        super().build(variables)
        self._momentums = self.add_optimizer_variables(variables, "momentum")
        self._velocities = self.add_optimizer_variables(variables, "velocity")

    def update_step(self, gradient, variable, learning_rate):
        number = self._get_variable_index(variable)
        first, second = self._momentums[number], self._velocities[number]
        first.assign(0.9 * first + gradient)
        second.assign(self.beta * second + gradient**2)
        variable.assign_sub(learning_rate * 0.1 * first / (ops.sqrt(0.01 * second) + 1e-3))


class Leaky(Plain):
    def call(self, x):
        return self.b(ops.leaky_relu(self.a(x), 0.2))


def momentum():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def slower():
    return Adaptive(beta=0.98)


def loss(outputs, target):
    return ops.mean((outputs["y"] - target) ** 2)


def of_both(outputs, target):
    return loss(outputs, target) + 0.01 * ops.mean(outputs["extra"] ** 2)
