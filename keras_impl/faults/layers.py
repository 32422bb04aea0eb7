"""Faults of layers."""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_impl.faults.mutate import Patches, constant, replaced, unused
from keras_impl.models.residual_block import BatchNorm2d
from keras_impl.record import specimen

Call = Callable[..., tf.Tensor]
NORM, BATCH_NORM, DENSE = keras.layers.LayerNormalization, BatchNorm2d, keras.layers.Dense


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
}
