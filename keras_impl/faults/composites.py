"""Faults between layers that are correct by themselves."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_impl.faults.mutate import Patches, replaced, unused
from keras_impl.models.residual_block import ResidualBlock
from keras_impl.models.transformer import EncoderLayer

Call = Callable[..., tf.Tensor]


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
    "transformer.final_norm": replaced(keras.layers.LayerNormalization, "call", _skipped_final_norm),
    "transformer.norm_order": replaced(EncoderLayer, "call", _norm_first),
    "transformer.shortcut": replaced(EncoderLayer, "call", _no_shortcut_around_attention),
    "transformer.position": replaced(EncoderLayer, "call", _with_positions),
    "residual.shortcut": replaced(ResidualBlock, "call", _no_shortcut),
    "residual.order": replaced(ResidualBlock, "call", _norm_after_relu),
}
