"""The same; only running can tell which of the bare matrices is the transposed one."""

import keras
from keras import layers, ops


class Projection(layers.Layer):
    """x times the transposed matrix."""

    def build(self, shape):
        self.matrix = self.add_weight(shape=(shape[-1], shape[-1]), name="matrix")

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.matrix))


class Product(layers.Layer):
    """x times the matrix."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], shape[-1]), name="w")

    def call(self, x):
        return ops.matmul(x, self.w)


class GatingUnit(layers.Layer):
    def __init__(self, activation: str, **kwargs):
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)

    def build(self, shape):
        self.weight = self.add_weight(shape=(shape[-1], shape[-1]), name="weight")
        self.bias = self.add_weight(shape=shape[-1:], initializer="zeros", name="bias")

    def call(self, x):
        return x * self.activation(ops.matmul(x, self.weight) + self.bias)


def build(dim: int, residual: bool = True, gate: str = "sigmoid") -> keras.Model:
    inputs = keras.Input((dim,))
    x = layers.Dense(dim, activation="tanh", name="entry")(inputs)
    mixed = layers.Activation("tanh")(Projection(name="first_projection")(x))
    x = x + mixed if residual else mixed
    x = Product(name="second_projection")(GatingUnit(gate, name="gating")(x))
    return keras.Model(inputs, layers.Dense(dim, name="exit")(x))
