"""The same; nn.Transformer ends both stacks with a norm."""

import keras
from keras import layers, ops


def norm(name: str) -> layers.Layer:
    return layers.LayerNormalization(epsilon=1e-5, name=name)


class FeedForward(layers.Layer):
    def __init__(self, dim: int, **kwargs):
        super().__init__(**kwargs)
        self.norm = norm("norm")
        self.inner = layers.Dense(2 * dim, activation="relu", name="inner")
        self.outer = layers.Dense(dim, name="outer")

    def call(self, x):
        return x + self.outer(self.inner(self.norm(x)))


class Attention(layers.Layer):
    def __init__(self, dim: int, heads: int, **kwargs):
        super().__init__(**kwargs)
        self.norm = norm("norm")
        self.attention = layers.MultiHeadAttention(heads, dim // heads, name="attention")

    def call(self, x, memory=None, mask=None, causal=False):
        query = self.norm(x)
        memory = query if memory is None else memory
        return x + self.attention(query, memory, attention_mask=mask, use_causal_mask=causal)


class Translator(keras.Model):
    def __init__(self, words: int, dim: int, heads: int, masked: bool):
        super().__init__()
        self.masked = masked
        self.source_embedding = layers.Embedding(words, dim, name="source_embedding")
        self.target_embedding = layers.Embedding(words, dim, name="target_embedding")
        self.encoder_attention = Attention(dim, heads, name="encoder_attention")
        self.encoder_ffn = FeedForward(dim, name="encoder_ffn")
        self.encoder_norm = norm("encoder_norm")
        self.decoder_attention = Attention(dim, heads, name="decoder_attention")
        self.cross_attention = Attention(dim, heads, name="cross_attention")
        self.decoder_ffn = FeedForward(dim, name="decoder_ffn")
        self.decoder_norm = norm("decoder_norm")
        self.logits = layers.Dense(words, name="logits")

    def call(self, source, padding, target):
        first = ops.arange(source.shape[1]) == 0
        mask = ops.logical_or(ops.logical_not(padding), first)[:, None, :]
        memory = self.encoder_attention(self.source_embedding(source), mask=mask)
        memory = self.encoder_norm(self.encoder_ffn(memory))
        x = self.decoder_attention(self.target_embedding(target), causal=True)
        x = self.cross_attention(x, memory, mask=mask if self.masked else None)
        return self.logits(self.decoder_norm(self.decoder_ffn(x)))


def build(words: int, dim: int, heads: int, masked: bool = True) -> keras.Model:
    return Translator(words, dim, heads, masked)
