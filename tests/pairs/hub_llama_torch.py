"""Hugging Face's Llama, small and random."""

from torch import nn
from transformers import LlamaConfig, LlamaModel


def build(words: int, layers: int, heads: int, groups: int, dim: int, inner: int) -> nn.Module:
    config = LlamaConfig(
        vocab_size=words,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        hidden_size=dim,
        intermediate_size=inner,
        max_position_embeddings=64,
        rms_norm_eps=1e-6,
        use_cache=False,
    )
    return LlamaModel(config)
