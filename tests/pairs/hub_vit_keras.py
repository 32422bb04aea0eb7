"""KerasHub's vision transformer of the same sizes."""

import keras
import keras_hub


def build(size: int, patch: int, layers: int, heads: int, dim: int) -> keras.Model:
    return keras_hub.models.ViTBackbone(
        image_shape=(size, size, 3),
        patch_size=(patch, patch),
        num_layers=layers,
        num_heads=heads,
        hidden_dim=dim,
        mlp_dim=2 * dim,
    )
