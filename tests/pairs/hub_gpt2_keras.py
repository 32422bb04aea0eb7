"""KerasHub's GPT-2 of the same sizes."""

import keras
import keras_hub


def build(words: int, length: int, layers: int, heads: int, dim: int) -> keras.Model:
    return keras_hub.models.GPT2Backbone(
        vocabulary_size=words,
        num_layers=layers,
        num_heads=heads,
        hidden_dim=dim,
        intermediate_dim=4 * dim,
        dropout=0.0,
        max_sequence_length=length,
    )
