"""The precision of a run: Keras's default float type, and mixed precision by its dtype policy."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

# Compute float32 in full: TF32 keeps 10 of its 23 bits, and TensorFlow uses it on GPUs by default.
tf.config.experimental.enable_tensor_float_32_execution(False)

MIXED = {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@contextmanager
def policy(at: str) -> Iterator[None]:
    """Make new variables and layers float64 or float32 within the block; half precisions are mixed policies."""
    previous = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64" if at == "float64" else "float32")
    keras.config.set_dtype_policy(MIXED.get(at, at))
    try:
        yield
    finally:
        keras.config.set_floatx(previous[0])
        keras.config.set_dtype_policy(previous[1])


@contextmanager
def eagerly(on: bool = True) -> Iterator[None]:
    """Run tf.functions op by op within the block if `on`, so that nothing is traced and all values can be seen."""
    was_eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(on or was_eager)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(was_eager)
