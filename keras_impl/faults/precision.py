"""Faults of precision, in float32 runs only: the float64 runs are correct."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from keras_impl.faults import layers
from keras_impl.faults.mutate import Patches, constant, replaced, together
from keras_impl.models.transformer import MultiheadAttention

Call = Callable[..., tf.Tensor]
DENSE, NORM = keras.layers.Dense, keras.layers.LayerNormalization


def _rounded(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.cast(tf.cast(x, dtype), x.dtype)


def _product_in(dtype: tf.DType) -> Callable[[Call], Call]:
    def change(call: Call) -> Call:
        def changed(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
            product = tf.matmul(tf.cast(x, dtype), tf.cast(self.kernel.value, dtype))
            return tf.cast(product, x.dtype) + self.bias.value

        return changed

    return change


def _ten_bits(x: tf.Tensor) -> tf.Tensor:
    """Round x to 10 bits, as TF32 rounds the factors of a product."""

    @tf.custom_gradient
    def rounded(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        bits = tf.bitcast(x, tf.int32) + (1 << 12)
        return tf.bitcast(tf.bitwise.bitwise_and(bits, ~((1 << 13) - 1)), tf.float32), lambda upstream: upstream

    return rounded(x)


def _factors_of_ten_bits(call: Call) -> Call:
    def changed(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        return tf.matmul(_ten_bits(x), _ten_bits(self.kernel.value)) + self.bias.value

    return changed


def _sums_in_float16(call: Call) -> Call:
    """Multiply in float32, but sum the products in float16."""

    def changed(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        products = tf.cast(x[..., None] * self.kernel.value, tf.float16)
        return tf.cast(tf.reduce_sum(products, axis=-2), x.dtype) + self.bias.value

    return changed


def _outputs_in(dtype: tf.DType) -> Callable[[Call], Call]:
    return lambda call: lambda self, *args, **kwargs: _rounded(call(self, *args, **kwargs), dtype)


def _softmax_in_bfloat16(softmax: Call) -> Call:
    return lambda x, *args, **kwargs: tf.cast(softmax(tf.cast(x, tf.bfloat16), *args, **kwargs), x.dtype)


@contextmanager
def _tf32() -> Iterator[None]:
    """Allow TF32 on GPUs within the block, which rounds factors of products to 10 bits."""
    tf.config.experimental.enable_tensor_float_32_execution(True)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(False)


FAULTS: dict[str, Patches] = {
    "relu.dropped_in_float32": together(
        layers.FAULTS["relu.dropped"], replaced(tf.nn, "relu", lambda relu: lambda x: x)
    ),
    "relu.bfloat16_in_float32": replaced(keras.layers.ReLU, "call", _outputs_in(tf.bfloat16)),
    "matmul.bfloat16_in_float32": replaced(DENSE, "call", _product_in(tf.bfloat16)),
    "matmul.float16_in_float32": replaced(DENSE, "call", _product_in(tf.float16)),
    "matmul.tf32_in_float32": replaced(DENSE, "call", _factors_of_ten_bits),
    "matmul.float16_sums_in_float32": replaced(DENSE, "call", _sums_in_float16),
    "softmax.bfloat16_in_float32": replaced(tf.nn, "softmax", _softmax_in_bfloat16),
    "attention.float16_in_float32": replaced(MultiheadAttention, "call", _outputs_in(tf.float16)),
    "layer_norm.bfloat16_in_float32": replaced(NORM, "call", _outputs_in(tf.bfloat16)),
    "layer_norm.epsilon_in_float32": constant(NORM, "epsilon", 1e-3),
    "embedding.bfloat16_in_float32": replaced(keras.layers.Embedding, "call", _outputs_in(tf.bfloat16)),
    "precision.tf32": lambda: [_tf32()],
}
