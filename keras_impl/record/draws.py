"""Random initial values that are replaced at once: of a large variable, only a part is drawn."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend import random

from parity.core.patches import applied, around

DRAWS = ("normal", "truncated_normal", "uniform")  # the functions that Keras's initializers call
PART = 65_521  # numbers: a prime, so that the rows of a matrix are no repetitions


def repeated() -> AbstractContextManager[None]:
    """Draw only a part of a large variable that is trained within the block, and repeat it in the rest.

    It is for models that are given other values: drawing 110 million numbers takes most of the time of building one.
    """
    return around(keras.Variable, "_initialize_with_initializer", _initialized)


def _initialized(initialize: Callable[..., None], variable: keras.Variable, initializer: Any) -> None:
    with applied(around(random, name, _drawn) for name in DRAWS if variable.trainable):
        initialize(variable, initializer)


def _drawn(draw: Callable[..., tf.Tensor], shape: Sequence[int], *args: Any, **kwargs: Any) -> tf.Tensor:
    size = int(np.prod(shape))
    if size <= PART:
        return draw(shape, *args, **kwargs)
    parts = -(-size // PART)
    return tf.reshape(tf.tile(draw((PART,), *args, **kwargs), [parts])[:size], shape)
