"""Faults of a model's layers, of attention, and of models whose layers are correct by themselves."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.models import transformer
from keras_impl.models.residual_block import BatchNorm2d, ResidualBlock
from keras_impl.models.transformer import EncoderDecoder, EncoderLayer, MultiheadAttention
from keras_impl.record import specimen
from parity.selftest.mutate import Patches, constant, replaced, wrapped

Call = Callable[..., tf.Tensor]
NORM, BATCH_NORM, DENSE = keras.layers.LayerNormalization, BatchNorm2d, keras.layers.Dense


def unused(*variables: keras.Variable) -> tf.Tensor:
    """Return zero, so that variables that a fault leaves out still have a gradient: zeros."""
    return tf.add_n([tf.reduce_sum(variable.value) * 0 for variable in variables])


# Batch norm.


def _running_statistics(call: Call, norm: BatchNorm2d, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    return call(norm, x, training=False)


def _synchronised(call: Call, norm: BatchNorm2d, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Use the statistics of the batches of all replicas together."""
    replica = tf.distribute.get_replica_context()
    samples = tf.shape(x)[0]
    start = replica.replica_id_in_sync_group * samples
    return call(norm, replica.all_gather(x, axis=0), training=training)[start : start + samples]


# Dense and convolutions.


def _transposed_product(dense: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    return tf.matmul(x, dense.kernel.value, transpose_b=True) + dense.bias.value


def _no_bias(dense: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    return tf.matmul(x, dense.kernel.value) + unused(dense.bias)


def _activated(call: Call, dense: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    return tf.nn.relu(call(dense, x))


def _padded_same(layer: specimen.Conv2d, x: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, layer.kernel.value, layer.strides, "SAME") + layer.bias.value


def _pooled_same(layer: specimen.MaxPool2d, x: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(x, layer.pool_size, layer.strides, "SAME")


def _channels_last(layer: specimen.Flatten, x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, (tf.shape(x)[0], -1))


# Activations.


def _leaky(layer: keras.layers.ReLU, x: tf.Tensor) -> tf.Tensor:
    return tf.where(x > 0, x, x * 0.01)


def _by_tanh(layer: specimen.GELU, x: tf.Tensor) -> tf.Tensor:
    return x * 0.5 * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _over_samples(layer: keras.layers.Softmax, x: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(x, axis=0)


# Embedding.


def _next_ids(call: Call, embedding: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
    return call(embedding, tf.minimum(ids + 1, embedding.input_dim - 1))


def _scaled_embedding(call: Call, embedding: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
    return call(embedding, ids) * math.sqrt(embedding.output_dim)


def _padding(call: Call, embedding: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
    """Keep the row of word 0 from training."""
    rows = call(embedding, ids)
    return tf.where(tf.equal(ids, 0)[..., None], tf.stop_gradient(rows), rows)


# Attention.


def _key_dim_of_all_heads(
    make: Callable[..., None], attention: MultiheadAttention, d_model: int, *args: Any, **kwargs: Any
) -> None:
    """Scale by 1 / sqrt(d) instead of 1 / sqrt(d / heads)."""
    make(attention, d_model, *args, **kwargs)
    attention.scale = 1 / math.sqrt(d_model)


def _interleaved_heads(
    layer: MultiheadAttention, x: tf.Tensor, memory: tf.Tensor, attention_mask: tf.Tensor | None = None, **_: object
) -> tf.Tensor:
    """Split d as (head size, heads) instead of (heads, head size)."""
    projected = layer.query(x) * layer.scale, layer.key(memory), layer.value(memory)
    query, key, value = (rearrange(tensor, "n t (k h) -> n t h k", h=layer.heads) for tensor in projected)
    scores = tf.einsum("nthk,nshk->nhts", query, key)
    weights = tf.nn.softmax(scores if attention_mask is None else scores + attention_mask)
    return layer.out_proj(rearrange(tf.einsum("nhts,nshk->nthk", weights, value), "n t h k -> n t (k h)"))


def _sequence_first(
    call: Call, attention: MultiheadAttention, x: tf.Tensor, memory: tf.Tensor, **kwargs: object
) -> tf.Tensor:
    """Let samples attend to samples, separately for each word."""
    x, memory = tf.transpose(x, (1, 0, 2)), tf.transpose(memory, (1, 0, 2))
    return tf.transpose(call(attention, x, memory, **kwargs), (1, 0, 2))


def _one_word_ahead(mask: Call, size: int, dtype: Any) -> tf.Tensor:
    """Let every word see the next one too."""
    return mask(size + 1, dtype)[1:, :-1]


# Models of layers that are correct by themselves.


def _skipped_final_norm(call: Call, norm: keras.layers.LayerNormalization, x: tf.Tensor) -> tf.Tensor:
    return x + unused(norm.gamma, norm.beta) if norm.name == "norm" else call(norm, x)


def _norm_first(layer: EncoderLayer, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    normed = layer.norm1(x)
    x = x + layer.dropout1(layer.self_attn(normed, normed, training=training), training=training)
    return x + layer.dropout2(layer.feed_forward(layer.norm2(x), training), training=training)


def _no_shortcut_around_attention(layer: EncoderLayer, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    x = layer.norm1(layer.dropout1(layer.self_attn(x, x, training=training), training=training))
    return layer.norm2(x + layer.dropout2(layer.feed_forward(x, training), training=training))


def _with_positions(call: Call, layer: EncoderLayer, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Let each layer add sinusoids (Vaswani et al. 2017, section 3.5) to its input."""
    return call(layer, x + _sinusoids(x), training=training)


def _sinusoids(x: tf.Tensor) -> tf.Tensor:
    _, length, width = x.shape
    angles = np.arange(length)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    return tf.constant(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), x.dtype)


def _no_shortcut(model: ResidualBlock, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    main = model.relu(model.bn1(model.conv1(x), training=training))
    main = model.bn2(model.conv2(main), training=training)
    return model.relu(main + 0 * model.shortcut(x, training=training))


def _norm_after_relu(model: ResidualBlock, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    main = model.bn1(model.relu(model.conv1(x)), training=training)
    main = model.bn2(model.conv2(main), training=training)
    return model.relu(main + model.shortcut(x, training=training))


FAULTS: dict[str, Patches] = {
    "layer_norm.epsilon": constant(NORM, "epsilon", 1.001e-5),
    "layer_norm.default_epsilon": constant(NORM, "epsilon", 1e-3),
    "group_norm.epsilon": constant(keras.layers.GroupNormalization, "epsilon", 1e-3),
    "batch_norm.epsilon": constant(BATCH_NORM, "epsilon", 1e-3),
    "batch_norm.momentum": constant(BATCH_NORM, "momentum", 0.99),
    "batch_norm.running_variance": replaced(BATCH_NORM, "call", keras.layers.BatchNormalization.call),
    "batch_norm.mode": wrapped(BATCH_NORM, "call", _running_statistics),
    "batch_norm.frozen": replaced(BATCH_NORM, "_track", lambda norm, statistic, new: None),
    "batch_norm.scope": wrapped(BATCH_NORM, "call", _synchronised),
    "linear.transposed": replaced(DENSE, "call", _transposed_product),
    "linear.bias": replaced(DENSE, "call", _no_bias),
    "linear.activation": wrapped(DENSE, "call", _activated),
    "conv2d.padding": replaced(specimen.Conv2d, "call", _padded_same),
    "max_pool.padding": replaced(specimen.MaxPool2d, "call", _pooled_same),
    "flatten.order": replaced(specimen.Flatten, "call", _channels_last),
    "gelu.form": replaced(specimen.GELU, "call", _by_tanh),
    "softmax.axis": replaced(keras.layers.Softmax, "call", _over_samples),
    "relu.dropped": replaced(keras.layers.ReLU, "call", lambda relu, x: x),
    "relu.slope": replaced(keras.layers.ReLU, "call", _leaky),
    "embedding.ids": wrapped(keras.layers.Embedding, "call", _next_ids),
    "embedding.scale": wrapped(keras.layers.Embedding, "call", _scaled_embedding),
    "embedding.padding_idx": wrapped(keras.layers.Embedding, "call", _padding),
    "attention.key_dim": wrapped(MultiheadAttention, "__init__", _key_dim_of_all_heads),
    "attention.heads": replaced(MultiheadAttention, "call", _interleaved_heads),
    "attention.batch_first": wrapped(MultiheadAttention, "call", _sequence_first),
    "attention.mask": replaced(EncoderDecoder, "mask", lambda model, target: None),
    "attention.mask_offset": wrapped(transformer, "_causal_mask", _one_word_ahead),
    "transformer.final_norm": wrapped(keras.layers.LayerNormalization, "call", _skipped_final_norm),
    "transformer.norm_order": replaced(EncoderLayer, "call", _norm_first),
    "transformer.shortcut": replaced(EncoderLayer, "call", _no_shortcut_around_attention),
    "transformer.position": wrapped(EncoderLayer, "call", _with_positions),
    "residual.shortcut": replaced(ResidualBlock, "call", _no_shortcut),
    "residual.order": replaced(ResidualBlock, "call", _norm_after_relu),
}
