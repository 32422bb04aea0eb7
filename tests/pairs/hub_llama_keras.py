"""KerasHub's Llama of the same sizes."""

import keras
import keras_hub


def build(
    words: int,
    layers: int,
    heads: int,
    groups: int,
    dim: int,
    inner: int,
    epsilon: float = 1e-6,
    wavelength: float = 10000,
) -> keras.Model:
    return keras_hub.models.LlamaBackbone(
        vocabulary_size=words,
        num_layers=layers,
        num_query_heads=heads,
        num_key_value_heads=groups,
        hidden_dim=dim,
        intermediate_dim=inner,
        layer_norm_epsilon=epsilon,
        rope_max_wavelength=wavelength,
    )
