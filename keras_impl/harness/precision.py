"""The precision of a run: Keras's default float and its dtype policy."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

# Float32 is float32: TF32 keeps 10 bits of its 23. By default TensorFlow uses it on GPUs.
tf.config.experimental.enable_tensor_float_32_execution(False)

MIXED = {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@contextmanager
def policy(at: str) -> Iterator[None]:
    """New variables and layers are float64 or float32 within the block; half precisions are mixed policies."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64" if at == "float64" else "float32")
    keras.config.set_dtype_policy(MIXED.get(at, at))
    try:
        yield
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])
