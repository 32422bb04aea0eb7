"""The same; the item's tower is built and called first, and no name tells the towers apart."""

import keras
from keras import layers, ops


class Similarity(layers.Layer):
    def build(self, shapes):
        self.bias = self.add_weight(shape=(), initializer="zeros", name="bias")
        self.temperature = self.add_weight(shape=(), initializer="ones", name="temperature")

    def call(self, pair):
        user, item = (x / ops.maximum(ops.norm(x, axis=-1, keepdims=True), 1e-12) for x in pair)
        return ops.exp(self.temperature) * ops.matmul(user, ops.transpose(item)) + self.bias


def tower(x, activation: str):
    return layers.Dense(12)(layers.Dense(12, activation=activation)(x))


def build(activation: str = "relu") -> keras.Model:
    item, user = keras.Input((9,), name="item"), keras.Input((9,), name="user")
    right, left = tower(item, "relu"), tower(user, activation)
    return keras.Model([item, user], Similarity()((left, right)))
