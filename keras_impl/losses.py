"""The losses: functions of a model's outputs and a target that return a scalar."""

import functools
from collections.abc import Callable

import keras
import tensorflow as tf

from parity.config import schema

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def build(config: schema.Loss) -> Loss:
    """Return the loss function that `config` describes."""
    return functools.partial({"mse": mse, "cross_entropy": cross_entropy}[config.kind], reduction=config.reduction)


def mse(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    """Return the squared error, reduced over all elements; outputs and target have the same shape."""
    return _reduce(tf.math.squared_difference(_at_least_float32(outputs), target), reduction)


def cross_entropy(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    """Return the cross entropy of logits (..., classes) with class ids (...)."""
    # fit passes class ids as floats.
    ids = tf.cast(target, tf.int64)
    return _reduce(tf.nn.sparse_softmax_cross_entropy_with_logits(ids, _at_least_float32(outputs)), reduction)


def _at_least_float32(outputs: tf.Tensor) -> tf.Tensor:
    """Cast half-precision outputs to float32, as torch.autocast does for losses."""
    return tf.cast(outputs, keras.backend.result_type(outputs.dtype, "float32"))


def _reduce(losses: tf.Tensor, reduction: str) -> tf.Tensor:
    return tf.reduce_mean(losses) if reduction == "mean" else tf.reduce_sum(losses)
