"""Faults of a model's layers, of attention, and of models whose layers are correct by themselves."""

import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.models import transformer
from keras_impl.models.residual_block import BatchNorm2d, ResidualBlock
from keras_impl.models.transformer import EncoderDecoder, EncoderLayer, MultiheadAttention
from keras_impl.record import specimen
from parity.selftest.mutate import Patches, constant, replaced

Call = Callable[..., tf.Tensor]
NORM, BATCH_NORM, DENSE = keras.layers.LayerNormalization, BatchNorm2d, keras.layers.Dense


def unused(*variables: keras.Variable) -> tf.Tensor:
    """Return zero, so that variables that a fault leaves out still have a gradient: zeros."""
    return tf.add_n([tf.reduce_sum(variable.value) * 0 for variable in variables])


# Batch norm.


def _running_statistics(call: Call) -> Call:
    return lambda self, x, training=False: call(self, x, training=False)


def _biased_variance(call: Call) -> Call:
    """Use Keras's own batch norm, whose running variance is the biased one."""
    return keras.layers.BatchNormalization.call


def _synchronised(call: Call) -> Call:
    """Use the statistics of the batches of all replicas together."""

    def changed(self: BatchNorm2d, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        replica = tf.distribute.get_replica_context()
        samples = tf.shape(x)[0]
        start = replica.replica_id_in_sync_group * samples
        return call(self, replica.all_gather(x, axis=0), training=training)[start : start + samples]

    return changed


# Dense and convolutions.


def _transposed_product(call: Call) -> Call:
    def changed(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        return tf.matmul(x, self.kernel.value, transpose_b=True) + self.bias.value

    return changed


def _no_bias(call: Call) -> Call:
    def changed(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        return tf.matmul(x, self.kernel.value) + unused(self.bias)

    return changed


def _activated(call: Call) -> Call:
    return lambda self, x, training=None: tf.nn.relu(call(self, x))


def _padded_same(call: Call) -> Call:
    def changed(self: specimen.Conv2d, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(x, self.kernel.value, self.strides, "SAME") + self.bias.value

    return changed


def _pooled_same(call: Call) -> Call:
    return lambda self, x: tf.nn.max_pool2d(x, self.pool_size, self.strides, "SAME")


def _channels_last(call: Call) -> Call:
    return lambda self, x: tf.reshape(x, (tf.shape(x)[0], -1))


# Activations.


def _leaky(call: Call) -> Call:
    return lambda self, x: tf.where(x > 0, x, x * 0.01)


def _by_tanh(call: Call) -> Call:
    def changed(self: specimen.GELU, x: tf.Tensor) -> tf.Tensor:
        return x * 0.5 * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    return changed


def _over_samples(call: Call) -> Call:
    return lambda self, x: tf.nn.softmax(x, axis=0)


# Embedding.


def _next_ids(call: Call) -> Call:
    return lambda self, ids: call(self, tf.minimum(ids + 1, self.input_dim - 1))


def _scaled_embedding(call: Call) -> Call:
    def changed(self: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
        return call(self, ids) * math.sqrt(self.output_dim)

    return changed


def _padding(call: Call) -> Call:
    """Keep the row of word 0 from training."""

    def changed(self: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
        rows = call(self, ids)
        return tf.where(tf.equal(ids, 0)[..., None], tf.stop_gradient(rows), rows)

    return changed


# Attention.


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


# Models of layers that are correct by themselves.


def _skipped_final_norm(call: Call) -> Call:
    def changed(self: keras.layers.LayerNormalization, x: tf.Tensor) -> tf.Tensor:
        return x + unused(self.gamma, self.beta) if self.name == "norm" else call(self, x)

    return changed


def _norm_first(call: Call) -> Call:
    def changed(self: EncoderLayer, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        normed = self.norm1(x)
        x = x + self.dropout1(self.self_attn(normed, normed, training=training), training=training)
        return x + self.dropout2(self.feed_forward(self.norm2(x), training), training=training)

    return changed


def _no_shortcut_around_attention(call: Call) -> Call:
    def changed(self: EncoderLayer, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        x = self.norm1(self.dropout1(self.self_attn(x, x, training=training), training=training))
        return self.norm2(x + self.dropout2(self.feed_forward(x, training), training=training))

    return changed


def _with_positions(call: Call) -> Call:
    """Let each layer add sinusoids (Vaswani et al. 2017, section 3.5) to its input."""
    return lambda self, x, training=False: call(self, x + _sinusoids(x), training=training)


def _sinusoids(x: tf.Tensor) -> tf.Tensor:
    _, length, width = x.shape
    angles = np.arange(length)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    return tf.constant(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), x.dtype)


def _no_shortcut(call: Call) -> Call:
    def changed(self: ResidualBlock, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        main = self.relu(self.bn1(self.conv1(x), training=training))
        main = self.bn2(self.conv2(main), training=training)
        return self.relu(main + 0 * self.shortcut(x, training=training))

    return changed


def _norm_after_relu(call: Call) -> Call:
    def changed(self: ResidualBlock, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        main = self.bn1(self.relu(self.conv1(x)), training=training)
        main = self.bn2(self.conv2(main), training=training)
        return self.relu(main + self.shortcut(x, training=training))

    return changed


FAULTS: dict[str, Patches] = {
    "layer_norm.epsilon": constant(NORM, "epsilon", 1.001e-5),
    "layer_norm.default_epsilon": constant(NORM, "epsilon", 1e-3),
    "group_norm.epsilon": constant(keras.layers.GroupNormalization, "epsilon", 1e-3),
    "batch_norm.epsilon": constant(BATCH_NORM, "epsilon", 1e-3),
    "batch_norm.momentum": constant(BATCH_NORM, "momentum", 0.99),
    "batch_norm.running_variance": replaced(BATCH_NORM, "call", _biased_variance),
    "batch_norm.mode": replaced(BATCH_NORM, "call", _running_statistics),
    "batch_norm.frozen": replaced(BATCH_NORM, "_track", lambda track: lambda self, statistic, new: None),
    "batch_norm.scope": replaced(BATCH_NORM, "call", _synchronised),
    "linear.transposed": replaced(DENSE, "call", _transposed_product),
    "linear.bias": replaced(DENSE, "call", _no_bias),
    "linear.activation": replaced(DENSE, "call", _activated),
    "conv2d.padding": replaced(specimen.Conv2d, "call", _padded_same),
    "max_pool.padding": replaced(specimen.MaxPool2d, "call", _pooled_same),
    "flatten.order": replaced(specimen.Flatten, "call", _channels_last),
    "gelu.form": replaced(specimen.GELU, "call", _by_tanh),
    "softmax.axis": replaced(keras.layers.Softmax, "call", _over_samples),
    "relu.dropped": replaced(keras.layers.ReLU, "call", lambda call: lambda self, x: x),
    "relu.slope": replaced(keras.layers.ReLU, "call", _leaky),
    "embedding.ids": replaced(keras.layers.Embedding, "call", _next_ids),
    "embedding.scale": replaced(keras.layers.Embedding, "call", _scaled_embedding),
    "embedding.padding_idx": replaced(keras.layers.Embedding, "call", _padding),
    "attention.key_dim": replaced(MultiheadAttention, "__init__", _key_dim_of_all_heads),
    "attention.heads": replaced(MultiheadAttention, "call", _interleaved_heads),
    "attention.batch_first": replaced(MultiheadAttention, "call", _sequence_first),
    "attention.mask": replaced(EncoderDecoder, "mask", _no_mask),
    "attention.mask_offset": replaced(transformer, "_causal_mask", _one_word_ahead),
    "transformer.final_norm": replaced(keras.layers.LayerNormalization, "call", _skipped_final_norm),
    "transformer.norm_order": replaced(EncoderLayer, "call", _norm_first),
    "transformer.shortcut": replaced(EncoderLayer, "call", _no_shortcut_around_attention),
    "transformer.position": replaced(EncoderLayer, "call", _with_positions),
    "residual.shortcut": replaced(ResidualBlock, "call", _no_shortcut),
    "residual.order": replaced(ResidualBlock, "call", _norm_after_relu),
}
