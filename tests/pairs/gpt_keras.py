"""The same as a functional model."""

import keras
from keras import layers, ops


class Positions(layers.Layer):
    """Adds a learned vector to each position."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], name="table")

    def call(self, x):
        return x + self.table


def block(x, heads: int, causal: bool, approximate: bool, epsilon: float, name: str):
    dim = x.shape[-1]
    y = layers.LayerNormalization(epsilon=epsilon, name=f"{name}_attention_norm")(x)
    attention = layers.MultiHeadAttention(heads, dim // heads, name=f"{name}_attention")
    x = x + attention(y, y, use_causal_mask=causal)
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_ffn_norm")(x)
    y = layers.Dense(4 * dim, name=f"{name}_ffn_in")(y)
    y = layers.Lambda(lambda z: ops.gelu(z, approximate=approximate), name=f"{name}_gelu")(y)
    return x + layers.Dense(dim, name=f"{name}_ffn_out")(y)


def build(
    words: int,
    length: int,
    dim: int,
    heads: int,
    causal: bool = True,
    exact_first: bool = False,
    epsilon: float = 1e-5,
) -> keras.Model:
    tokens = keras.Input((length,), dtype="int32", name="tokens")
    x = Positions(name="positions")(layers.Embedding(words, dim, name="token_embedding")(tokens))
    x = block(x, heads, True, not exact_first, 1e-5, "block0")
    x = block(x, heads, causal, False, epsilon, "block1")
    x = layers.LayerNormalization(epsilon=1e-5, name="final_norm")(x)
    return keras.Model(tokens, layers.Dense(words, use_bias=False, name="logits")(x))
