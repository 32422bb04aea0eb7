"""Hugging Face's vision transformer, small and random."""

from torch import nn
from transformers import ViTConfig, ViTModel


def build(size: int, patch: int, layers: int, heads: int, dim: int, epsilon: float = 1e-6) -> nn.Module:
    config = ViTConfig(
        image_size=size,
        patch_size=patch,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        hidden_size=dim,
        intermediate_size=2 * dim,
        layer_norm_eps=epsilon,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ViTModel(config, add_pooling_layer=False)
