"""Hugging Face's encoder-decoder models, small and random: one builder each."""

import transformers as hf
from torch import nn

SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
INNER = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "dropout": 0.0, "use_cache": False}


def bart() -> nn.Module:
    return hf.BartModel(hf.BartConfig(**SIZES, **INNER, vocab_size=61, max_position_embeddings=16))


def t5() -> nn.Module:
    """Return a T5 V1.1: gated, with a head of its own."""
    sizes = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4, "vocab_size": 61}
    return hf.T5Model(hf.T5Config(**sizes, feed_forward_proj="gated-gelu", dropout_rate=0.0, use_cache=False))


def whisper() -> nn.Module:
    lengths = {
        "max_source_positions": 8,
        "max_target_positions": 12,
        "num_mel_bins": 10,
        "vocab_size": 61,
        "pad_token_id": 1,
    }
    tokens = {"bos_token_id": 2, "eos_token_id": 2, "decoder_start_token_id": 2}
    return hf.WhisperModel(hf.WhisperConfig(**SIZES, **INNER, **lengths, **tokens))
