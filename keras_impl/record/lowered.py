"""Float64 that a program makes its default: its low run has float32 in its place, so that both precisions are run."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import product
from typing import Any

import keras
import tensorflow as tf

from keras_impl.instruments.numbers import MAKERS
from parity.core.patches import Original, applied, around
from parity.core.precision import HIGH

CAST = tf.cast  # as it is where it is not wrapped


def defaults() -> AbstractContextManager[None]:
    """Return a context in which a program that makes float64 its default has float32, also of arrays from NumPy."""
    return applied(_lowering())


def _lowering() -> Iterator[Any]:
    is_wide = False

    def set_low(set_default: Original, value: Any) -> None:
        nonlocal is_wide
        is_wide = value == HIGH
        set_default("float32" if is_wide else value)

    def made_low(make: Original, *args: Any, **kwargs: Any) -> Any:
        result = make(*args, **kwargs)
        return CAST(result, tf.float32) if is_wide and getattr(result, "dtype", None) == tf.float64 else result

    for owner, name in product((keras.config, keras.backend, tf.keras.backend), ("set_floatx", "set_dtype_policy")):
        if hasattr(owner, name):
            yield around(owner, name, set_low)
    for owner, names in MAKERS:
        yield from (around(owner, name, made_low) for name in names)
