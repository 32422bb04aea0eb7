"""The same, batch first."""

import keras
from keras import layers


class EncoderLayer(layers.Layer):
    def __init__(self, dim: int, heads: int, epsilon: float, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, dim // heads, name="attention")
        self.attention_norm = layers.LayerNormalization(epsilon=epsilon, name="attention_norm")
        self.expand = layers.Dense(2 * dim, activation="relu", name="expand")
        self.contract = layers.Dense(dim, name="contract")
        self.output_norm = layers.LayerNormalization(epsilon=1e-5, name="output_norm")

    def call(self, x):
        x = self.attention_norm(x + self.attention(x, x))
        return self.output_norm(x + self.contract(self.expand(x)))


class Encoder(keras.Model):
    def __init__(self, dim: int, heads: int, number: int, epsilon: float):
        super().__init__()
        self.blocks = [
            EncoderLayer(dim, heads, epsilon if i == number - 1 else 1e-5, name=f"layer_{i}") for i in range(number)
        ]
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="final_norm")

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def build(dim: int, heads: int, layers: int = 2, epsilon: float = 1e-5) -> keras.Model:
    return Encoder(dim, heads, layers, epsilon)
