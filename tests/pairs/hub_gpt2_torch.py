"""Hugging Face's GPT-2, small and random."""

from torch import nn
from transformers import GPT2Config, GPT2Model


def build(words: int, length: int, layers: int, heads: int, dim: int, activation: str = "gelu_new") -> nn.Module:
    config = GPT2Config(
        vocab_size=words,
        n_positions=length,
        n_layer=layers,
        n_head=heads,
        n_embd=dim,
        activation_function=activation,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        use_cache=False,
    )
    return GPT2Model(config)
