"""The settings of Keras and TensorFlow that hold for a whole process, which a user's code may change for all others."""

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import config, ops

# The modules that keep TensorFlow's settings, public or not, and how the names of functions begin that return one.
OWNERS = (
    (keras.config, ("backend", "dtype_policy", "epsilon", "floatx", "image_data_format", "is_", "max_")),
    (keras.distribution, ("distribution",)),
    (tf.config, ("get_visible_devices", "functions_run_eagerly")),
    (config, ("get_", "is_", "tensor_float_32")),
    (ops, ("get_dtype_conversion_mode", "get_name_scope", "is_")),
    (tf.debugging, ("get_", "is_")),
    (tf, ("executing_eagerly",)),
)


def settings() -> dict[str, str]:
    """Return every global setting that Keras and TensorFlow tell, by name, as text.

    Read in general, so that new settings are among them: what their own functions without arguments return, and what
    TensorFlow calls for all ops (as `tf.debugging.enable_check_numerics` has it do).
    """
    told = [each for owner, names in OWNERS for each in _told(owner, names)]
    told.append(("op callbacks", context.context().op_callbacks))
    told.append(("device", context.context().device_name))
    return {name: repr(value) for name, value in told}


def _told(owner: Any, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Return what those functions of a module return that need no argument."""
    for name in dir(owner):
        if name.startswith(names) and callable(function := getattr(owner, name)):
            try:
                yield f"{owner.__name__}.{name}", function()
            except TypeError:  # it wants arguments
                continue
