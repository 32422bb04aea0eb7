"""Faults of attention."""

import math
from collections.abc import Callable

import tensorflow as tf
from einops import rearrange

from keras_impl.faults.mutate import Patches, replaced
from keras_impl.models import transformer
from keras_impl.models.transformer import EncoderDecoder, MultiheadAttention

Call = Callable[..., tf.Tensor]


def _key_dim_of_all_heads(make: Callable[..., None]) -> Callable[..., None]:
    """Scale by 1 / sqrt(d) instead of 1 / sqrt(d / heads)."""

    def changed(self: MultiheadAttention, d_model: int, heads: int, dropout: float, name: str) -> None:
        make(self, d_model, heads, dropout, name)
        self.scale = 1 / math.sqrt(d_model)

    return changed


def _interleaved_heads(call: Call) -> Call:
    """Split d as (head size, heads) instead of (heads, head size)."""

    def changed(
        self: MultiheadAttention, x: tf.Tensor, memory: tf.Tensor, attention_mask: tf.Tensor | None = None, **_: object
    ) -> tf.Tensor:
        projected = self.query(x) * self.scale, self.key(memory), self.value(memory)
        query, key, value = (rearrange(tensor, "n t (k h) -> n t h k", h=self.heads) for tensor in projected)
        scores = tf.einsum("nthk,nshk->nhts", query, key)
        weights = tf.nn.softmax(scores if attention_mask is None else scores + attention_mask)
        return self.out_proj(rearrange(tf.einsum("nhts,nshk->nthk", weights, value), "n t h k -> n t (k h)"))

    return changed


def _sequence_first(call: Call) -> Call:
    """Let samples attend to samples, separately for each word."""

    def changed(self: MultiheadAttention, x: tf.Tensor, memory: tf.Tensor, **kwargs: object) -> tf.Tensor:
        x, memory = tf.transpose(x, (1, 0, 2)), tf.transpose(memory, (1, 0, 2))
        return tf.transpose(call(self, x, memory, **kwargs), (1, 0, 2))

    return changed


def _no_mask(mask: Call) -> Call:
    return lambda self, target: None


def _one_word_ahead(mask: Call) -> Call:
    """Let every word see the next one too."""
    return lambda size, dtype: mask(size + 1, dtype)[1:, :-1]


FAULTS: dict[str, Patches] = {
    "attention.key_dim": replaced(MultiheadAttention, "__init__", _key_dim_of_all_heads),
    "attention.heads": replaced(MultiheadAttention, "call", _interleaved_heads),
    "attention.batch_first": replaced(MultiheadAttention, "call", _sequence_first),
    "attention.mask": replaced(EncoderDecoder, "mask", _no_mask),
    "attention.mask_offset": replaced(transformer, "_causal_mask", _one_word_ahead),
}
