"""The same by Keras's layer, which has three kernels for torch's packed one."""

import keras
from keras import layers


def build(dim: int, heads: int, causal: bool = False, epsilon: float = 1e-5) -> keras.Model:
    x = keras.Input((None, dim))
    attended = layers.MultiHeadAttention(heads, dim // heads)(x, x, use_causal_mask=causal)
    return keras.Model(x, layers.LayerNormalization(epsilon=epsilon)(layers.Add()([x, attended])))
