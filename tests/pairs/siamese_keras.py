"""The same; the encoder is called on the right input first."""

import keras
from keras import layers, ops


class Siamese(keras.Model):
    def __init__(self, absolute: bool, detached: bool):
        super().__init__()
        self.absolute, self.detached = absolute, detached
        self.project = layers.Dense(16, activation="relu", name="project")
        self.embed = layers.Dense(4, name="embed")
        self.decide = layers.Dense(2, name="decide")

    def call(self, first, second):
        right, left = (self.embed(self.project(x)) for x in (second, first))
        right = ops.stop_gradient(right) if self.detached else right
        return self.decide(ops.abs(left - right) if self.absolute else left - right)


def build(absolute: bool = True, detached: bool = False) -> keras.Model:
    return Siamese(absolute, detached)
