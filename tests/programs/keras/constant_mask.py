"""A causal mask that NumPy makes in every step, on the host."""

import keras
import numpy as np
import tensorflow as tf

from tests.programs.keras.usual import step as step


class Attention(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(2, 8)

    def call(self, x):
        mask = tf.constant(np.tril(np.ones((1, 12, 12), np.bool_)))  # fault
        return self.attention(x, x, attention_mask=mask)


class AttentionRight(Attention):
    def build(self, shape):
        self.mask = self.add_weight(shape=(1, 12, 12), initializer="ones", trainable=False, name="mask")
        self.mask.assign(np.tril(np.ones((1, 12, 12), np.float32)))
        super().build(shape)

    def call(self, x):
        return self.attention(x, x, attention_mask=self.mask)


def build(attention=Attention):
    model = keras.Sequential([attention()])
    model.compile(keras.optimizers.Adam(0.001))
    return model


def build_right():
    return build(AttentionRight)
