"""Faults of what a model computes: its layers, their order, initial parameters, dropout and a lower precision."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.dropout import keep
from keras_impl.models import transformer
from keras_impl.models.residual_block import BatchNorm2d, ResidualBlock
from keras_impl.models.transformer import EncoderDecoder, EncoderLayer, MultiheadAttention
from keras_impl.record import masks, specimen, weights
from keras_impl.record.masks import Masks
from keras_impl.strategies import single
from parity.core import random
from parity.core.arrays import Floats
from parity.core.patches import Original, setting
from parity.selftest.mutate import Patches, constant, loaded, replaced, together, wrapped

Call = Callable[..., tf.Tensor]
NORM, BATCH_NORM, DENSE = keras.layers.LayerNormalization, BatchNorm2d, keras.layers.Dense
_of = partial(loaded, weights)
EMBEDDING, RELU = keras.layers.Embedding, keras.layers.ReLU
_dense, _embedding = partial(replaced, DENSE, "call"), partial(wrapped, EMBEDDING, "call")


def unused(*variables: keras.Variable) -> tf.Tensor:
    """Return zero, so that variables that a fault leaves out still have a gradient: zeros."""
    return tf.add_n([tf.reduce_sum(variable.value) * 0 for variable in variables])


def _synchronised(call: Call, norm: BatchNorm2d, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Use the statistics of the batches of all replicas together."""
    replica = tf.distribute.get_replica_context()
    samples = tf.shape(x)[0]
    start = replica.replica_id_in_sync_group * samples
    return call(norm, replica.all_gather(x, axis=0), training=training)[start : start + samples]


def _padding(call: Call, embedding: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
    """Keep the row of word 0 from training."""
    rows = call(embedding, ids)
    return tf.where(tf.equal(ids, 0)[..., None], tf.stop_gradient(rows), rows)


def _key_dim_of_all_heads(
    make: Original, attention: MultiheadAttention, d_model: int, *args: Any, **kwargs: Any
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


def _skipped_final_norm(call: Call, norm: keras.layers.LayerNormalization, x: tf.Tensor) -> tf.Tensor:
    return x + unused(norm.gamma, norm.beta) if norm.name == "norm" else call(norm, x)


def _norm_first(layer: EncoderLayer, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    normed = layer.norm1(x)
    x = x + layer.dropout1(layer.self_attn(normed, normed, training=training), training=training)
    return x + layer.dropout2(layer.feed_forward(layer.norm2(x), training), training=training)


def _no_shortcut_around_attention(layer: EncoderLayer, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    x = layer.norm1(layer.dropout1(layer.self_attn(x, x, training=training), training=training))
    return layer.norm2(x + layer.dropout2(layer.feed_forward(x, training), training=training))


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


def _query_for_key(packed: Floats) -> Floats:
    query, key, value = np.split(packed, 3)
    return np.concatenate([key, query, value])


def _glorot_uniform(values: Floats) -> Floats:
    """Draw weights as Keras initialises them."""
    bound = math.sqrt(6 / sum(values.shape))
    return random.representable(random.uniform(1, "glorot", values.shape, bound), "float32")


def _product_in(
    dtype: tf.DType, _: Call, dense: keras.layers.Dense, x: tf.Tensor, training: bool | None = None
) -> tf.Tensor:
    product = tf.matmul(tf.cast(x, dtype), tf.cast(dense.kernel.value, dtype))
    return tf.cast(product, x.dtype) + dense.bias.value


def _ten_bits(x: tf.Tensor) -> tf.Tensor:
    """Round x to 10 bits, as TF32 rounds the factors of a product."""

    @tf.custom_gradient
    def rounded(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        bits = tf.bitcast(x, tf.int32) + (1 << 12)
        return tf.bitcast(tf.bitwise.bitwise_and(bits, ~((1 << 13) - 1)), tf.float32), lambda upstream: upstream

    return rounded(x)


def _sums_in_float16(dense: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Multiply in float32, but sum the products in float16."""
    products = tf.cast(x[..., None] * dense.kernel.value, tf.float16)
    return tf.cast(tf.reduce_sum(products, axis=-2), x.dtype) + dense.bias.value


def _outputs_in(dtype: tf.DType, call: Call, *args: Any, **kwargs: Any) -> tf.Tensor:
    outputs = call(*args, **kwargs)
    return tf.cast(tf.cast(outputs, dtype), outputs.dtype)


def _tf32() -> AbstractContextManager[None]:
    config = tf.config.experimental
    return setting(config.tensor_float_32_execution_enabled, config.enable_tensor_float_32_execution, True)


FAULTS: dict[str, Patches] = {
    "layer_norm.epsilon": constant(NORM, "epsilon", 1.001e-5),
    "layer_norm.default_epsilon": constant(NORM, "epsilon", 1e-3),
    "group_norm.epsilon": constant(keras.layers.GroupNormalization, "epsilon", 1e-3),
    "batch_norm.epsilon": constant(BATCH_NORM, "epsilon", 1e-3),
    "batch_norm.momentum": constant(BATCH_NORM, "momentum", 0.99),
    "batch_norm.running_variance": replaced(BATCH_NORM, "call", keras.layers.BatchNormalization.call),
    "batch_norm.mode": wrapped(BATCH_NORM, "call", lambda call, norm, x, training=False: call(norm, x, training=False)),
    "batch_norm.frozen": replaced(BATCH_NORM, "_track", lambda norm, statistic, new: None),
    "batch_norm.scope": wrapped(BATCH_NORM, "call", _synchronised),
    "linear.transposed": _dense(
        lambda dense, x, training=None: tf.matmul(x, dense.kernel.value, transpose_b=True) + dense.bias.value
    ),
    "linear.bias": _dense(lambda dense, x, training=None: tf.matmul(x, dense.kernel.value) + unused(dense.bias)),
    "linear.activation": wrapped(DENSE, "call", lambda call, dense, x, training=None: tf.nn.relu(call(dense, x))),
    "conv2d.padding": replaced(
        specimen.Conv2d,
        "call",
        lambda layer, x: tf.nn.conv2d(x, layer.kernel.value, layer.strides, "SAME") + layer.bias.value,
    ),
    "max_pool.padding": replaced(
        specimen.MaxPool2d, "call", lambda layer, x: tf.nn.max_pool2d(x, layer.pool_size, layer.strides, "SAME")
    ),
    "flatten.order": replaced(specimen.Flatten, "call", lambda layer, x: tf.reshape(x, (tf.shape(x)[0], -1))),
    "gelu.form": replaced(
        specimen.GELU, "call", lambda layer, x: x * 0.5 * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "softmax.axis": replaced(keras.layers.Softmax, "call", lambda layer, x: tf.nn.softmax(x, axis=0)),
    "relu.dropped": replaced(RELU, "call", lambda relu, x: x),
    "relu.slope": replaced(RELU, "call", lambda relu, x: tf.where(x > 0, x, x * 0.01)),
    "embedding.ids": _embedding(lambda call, layer, ids: call(layer, tf.minimum(ids + 1, layer.input_dim - 1))),
    "embedding.scale": _embedding(lambda call, layer, ids: call(layer, ids) * math.sqrt(layer.output_dim)),
    "embedding.padding_idx": _embedding(_padding),
    "attention.key_dim": wrapped(MultiheadAttention, "__init__", _key_dim_of_all_heads),
    "attention.heads": replaced(MultiheadAttention, "call", _interleaved_heads),
    "attention.batch_first": wrapped(MultiheadAttention, "call", _sequence_first),
    "attention.mask": replaced(EncoderDecoder, "mask", lambda model, target: None),
    "attention.mask_offset": wrapped(
        transformer, "_causal_mask", lambda mask, size, dtype: mask(size + 1, dtype)[1:, :-1]
    ),
    "transformer.final_norm": wrapped(NORM, "call", _skipped_final_norm),
    "transformer.norm_order": replaced(EncoderLayer, "call", _norm_first),
    "transformer.shortcut": replaced(EncoderLayer, "call", _no_shortcut_around_attention),
    "transformer.position": wrapped(
        EncoderLayer, "call", lambda call, layer, x, training=False: call(layer, x + _sinusoids(x), training=training)
    ),
    "residual.shortcut": replaced(ResidualBlock, "call", _no_shortcut),
    "residual.order": replaced(ResidualBlock, "call", _norm_after_relu),
    "linear.weight": _of("weight", np.transpose),
    "conv2d.weight": _of("conv1.weight", lambda kernel: np.swapaxes(kernel, 2, 3)),
    "conv2d.flipped": _of("conv.weight", lambda kernel: kernel[:, :, ::-1, ::-1]),
    "conv_transpose": _of("up.weight", lambda kernel: np.swapaxes(kernel, 0, 1)),
    "attention.packing": _of("in_proj_weight", _query_for_key),
    "initialisation": together(_of("linear2.weight", _glorot_uniform), _of("linear2.bias", np.zeros_like)),
    "dropout.generator": replaced(Masks, "attach", lambda masks, model, replica: None),
    "dropout.replicas": wrapped(random, "mask_key", lambda mask_key, seed, name, replica: mask_key(seed, name, 0)),
    "dropout.step": replaced(Masks, "on_step", lambda masks: masks._calls.clear()),
    "dropout.rate": constant(keras.layers.Dropout, "rate", 0.2),
    "dropout.scale": replaced(
        masks, "dropout", lambda x, numbers, rate, key: x * tf.cast(keep(numbers, rate, key), x.dtype)
    ),
    "evaluation.mode": replaced(
        single, "evaluate", lambda model, inputs: model(single.unpacked(inputs), training=True)
    ),
}
# In float32 runs only: the float64 runs are correct.
FAULTS_IN_FLOAT32: dict[str, Patches] = {
    "relu.dropped_in_float32": together(FAULTS["relu.dropped"], replaced(tf.nn, "relu", lambda x: x)),
    "relu.bfloat16_in_float32": wrapped(RELU, "call", partial(_outputs_in, tf.bfloat16)),
    "matmul.bfloat16_in_float32": wrapped(DENSE, "call", partial(_product_in, tf.bfloat16)),
    "matmul.float16_in_float32": wrapped(DENSE, "call", partial(_product_in, tf.float16)),
    "matmul.tf32_in_float32": _dense(
        lambda dense, x, training=None: tf.matmul(_ten_bits(x), _ten_bits(dense.kernel.value)) + dense.bias.value
    ),
    "matmul.float16_sums_in_float32": _dense(_sums_in_float16),
    "softmax.bfloat16_in_float32": wrapped(
        tf.nn,
        "softmax",
        lambda softmax, x, *args, **kwargs: tf.cast(softmax(tf.cast(x, tf.bfloat16), *args, **kwargs), x.dtype),
    ),
    "attention.float16_in_float32": wrapped(MultiheadAttention, "call", partial(_outputs_in, tf.float16)),
    "layer_norm.bfloat16_in_float32": wrapped(NORM, "call", partial(_outputs_in, tf.bfloat16)),
    "layer_norm.epsilon_in_float32": constant(NORM, "epsilon", 1e-3),
    "embedding.bfloat16_in_float32": _embedding(partial(_outputs_in, tf.bfloat16)),
    "precision.tf32": lambda: [_tf32()],
}
