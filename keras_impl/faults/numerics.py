"""Faults of a model's numbers: other initial parameters, other masks of dropout, a lower precision."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_impl.dropout import Key, keep
from keras_impl.faults import model
from keras_impl.models.transformer import MultiheadAttention
from keras_impl.record import masks, weights
from keras_impl.record.masks import Masks
from keras_impl.strategies import single
from parity.core import random
from parity.core.arrays import Floats
from parity.core.patches import setting
from parity.selftest.mutate import Patches, constant, loaded, replaced, together, wrapped

Call = Callable[..., tf.Tensor]
DENSE, NORM = keras.layers.Dense, keras.layers.LayerNormalization


# Initial parameters.


def _of(ending: str, change: Callable[[Floats], Floats]) -> Patches:
    """Change the parameters whose names have this ending when they are loaded."""
    return loaded(weights, lambda name, values: change(values) if name.endswith(ending) else values)


def _query_for_key(packed: Floats) -> Floats:
    query, key, value = np.split(packed, 3)
    return np.concatenate([key, query, value])


def _not_loaded(name: str, values: Floats) -> Floats:
    """Leave linear2 at an initialization like Keras's: Glorot uniform, and a bias of zeros."""
    if name == "linear2.weight":
        bound = math.sqrt(6 / sum(values.shape))
        return random.representable(random.uniform(1, "glorot", values.shape, bound), "float32")
    return np.zeros_like(values) if name == "linear2.bias" else values


# Dropout.


def _as_replica_0(mask_key: Callable[..., tuple[int, int]], seed: int, name: str, replica: int) -> tuple[int, int]:
    return mask_key(seed, name, 0)


def _as_step_0(masks: Masks) -> None:
    masks._calls.clear()


def _unscaled(x: tf.Tensor, numbers: tf.Tensor, rate: float, key: Key) -> tf.Tensor:
    return x * tf.cast(keep(numbers, rate, key), x.dtype)


def _in_training(model: keras.Model, inputs: tuple[Any, ...]) -> tf.Tensor:
    return model(single.unpacked(inputs), training=True)


# Precision.


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


def _factors_of_ten_bits(dense: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    return tf.matmul(_ten_bits(x), _ten_bits(dense.kernel.value)) + dense.bias.value


def _sums_in_float16(dense: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Multiply in float32, but sum the products in float16."""
    products = tf.cast(x[..., None] * dense.kernel.value, tf.float16)
    return tf.cast(tf.reduce_sum(products, axis=-2), x.dtype) + dense.bias.value


def _outputs_in(dtype: tf.DType, call: Call, *args: Any, **kwargs: Any) -> tf.Tensor:
    outputs = call(*args, **kwargs)
    return tf.cast(tf.cast(outputs, dtype), outputs.dtype)


def _softmax_in_bfloat16(softmax: Call, x: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
    return tf.cast(softmax(tf.cast(x, tf.bfloat16), *args, **kwargs), x.dtype)


def _tf32() -> AbstractContextManager[None]:
    """Return a context in which TF32 is allowed on GPUs, which rounds factors of products to 10 bits."""
    config = tf.config.experimental
    return setting(config.tensor_float_32_execution_enabled, config.enable_tensor_float_32_execution, True)


FAULTS: dict[str, Patches] = {
    "linear.weight": _of("weight", np.transpose),
    "conv2d.weight": _of("conv1.weight", lambda kernel: np.swapaxes(kernel, 2, 3)),
    "conv2d.flipped": _of("conv.weight", lambda kernel: kernel[:, :, ::-1, ::-1]),
    "conv_transpose": _of("up.weight", lambda kernel: np.swapaxes(kernel, 0, 1)),
    "attention.packing": _of("in_proj_weight", _query_for_key),
    "initialisation": loaded(weights, _not_loaded),
    "dropout.generator": replaced(Masks, "attach", lambda masks, model, replica: None),
    "dropout.replicas": wrapped(random, "mask_key", _as_replica_0),
    "dropout.step": replaced(Masks, "on_step", _as_step_0),
    "dropout.rate": constant(keras.layers.Dropout, "rate", 0.2),
    "dropout.scale": replaced(masks, "dropout", _unscaled),
    "evaluation.mode": replaced(single, "evaluate", _in_training),
}
# In float32 runs only: the float64 runs are correct.
FAULTS_IN_FLOAT32: dict[str, Patches] = {
    "relu.dropped_in_float32": together(model.FAULTS["relu.dropped"], replaced(tf.nn, "relu", lambda x: x)),
    "relu.bfloat16_in_float32": wrapped(keras.layers.ReLU, "call", partial(_outputs_in, tf.bfloat16)),
    "matmul.bfloat16_in_float32": wrapped(DENSE, "call", partial(_product_in, tf.bfloat16)),
    "matmul.float16_in_float32": wrapped(DENSE, "call", partial(_product_in, tf.float16)),
    "matmul.tf32_in_float32": replaced(DENSE, "call", _factors_of_ten_bits),
    "matmul.float16_sums_in_float32": replaced(DENSE, "call", _sums_in_float16),
    "softmax.bfloat16_in_float32": wrapped(tf.nn, "softmax", _softmax_in_bfloat16),
    "attention.float16_in_float32": wrapped(MultiheadAttention, "call", partial(_outputs_in, tf.float16)),
    "layer_norm.bfloat16_in_float32": wrapped(NORM, "call", partial(_outputs_in, tf.bfloat16)),
    "layer_norm.epsilon_in_float32": constant(NORM, "epsilon", 1e-3),
    "embedding.bfloat16_in_float32": wrapped(keras.layers.Embedding, "call", partial(_outputs_in, tf.bfloat16)),
    "precision.tf32": lambda: [_tf32()],
}
