"""A functional model, in a subclassed one, in a Sequential."""

import keras
from keras import layers


def tower(inside: int, outside: int, slope: float, name: str) -> keras.Model:
    x = inputs = keras.Input((inside,))
    for units in (14, outside):
        x = layers.LeakyReLU(negative_slope=slope)(layers.Dense(units)(x))
    return keras.Model(inputs, x, name=name)


class Stack(keras.Model):
    def __init__(self, slopes: list[float], **kwargs):
        super().__init__(**kwargs)
        self.lower = tower(9, 11, slopes[0], "lower")
        self.upper = tower(11, 11, slopes[1], "upper")
        self.squeeze = layers.Dense(7, name="squeeze")

    def call(self, x):
        return self.squeeze(self.upper(self.lower(x)))


def build(slope: float = 0.125, upper_slope: float | None = None) -> keras.Model:
    stack = Stack([slope, slope if upper_slope is None else upper_slope], name="stack")
    return keras.Sequential([keras.Input((9,)), stack, layers.Activation("softplus"), layers.Dense(3)])
