"""Where in the user's code each part of a model is made; and draws of initial values that are replaced at once.

What is noted of layers at their creation as well: Keras itself keeps only the order of calls.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras import initializers
from keras.src.backend import random
from keras.src.ops.operation import Operation

from parity.core.patches import applied, around
from parity.runtime import construction
from parity.runtime.survey import Made

# What layers begin with by default, where that is random.
DEFAULTS = [initializers.GlorotUniform(), initializers.RandomUniform(), initializers.Orthogonal()]
DETAILS = dict.fromkeys(("seed", "input_axes", "output_axes"))  # what initializers of one kind may have different


class Sources(construction.Sources):
    """The lines that made layers and optimizers, and what variables begin with, while it is recorded."""

    kinds = (keras.Layer, keras.optimizers.Optimizer)

    def layers(self) -> Iterator[tuple[keras.Layer, Made]]:
        """Yield the layers that were made in the user's code, and where."""
        yield from (entry for entry in self._made.values() if isinstance(entry[0], keras.Layer))

    def _filling(self) -> Iterator[AbstractContextManager]:
        yield around(keras.Variable, "_initialize_with_initializer", self._initialize)  # at once, or later

    def _initialize(self, initialize: Callable[..., None], variable: Any, initializer: Any) -> None:
        initialize(variable, initializer)
        alike = [each.get_config() | DETAILS for each in DEFAULTS if type(initializer) is type(each)]
        if alike and initializer.get_config() | DETAILS == alike[0]:
            self._note_filled(variable)

    def _first(self, weight: Any) -> list[float]:
        with tf.init_scope():  # out of a graph that is being traced
            return tf.reshape(tf.convert_to_tensor(weight), [-1])[: construction.FIRST].numpy().tolist()


Noted = TypeVar("Noted")


@contextmanager
def noted_at_creation(note: Callable[[], Noted]) -> Iterator[dict[int, Noted]]:
    """Yield what `note` returns when a layer or an operation is created within the context, by its id()."""
    noted: dict[int, Noted] = {}
    create = Operation.__init__

    def noting(operation: Operation, *args: Any, **kwargs: Any) -> None:  # Keras asks for the first argument's name
        noted[id(operation)] = note()  # the id may have been that of one that is gone
        create(operation, *args, **kwargs)

    with mock.patch.object(Operation, "__init__", noting):
        yield noted


DRAWS = ("normal", "truncated_normal", "uniform")  # the functions that Keras's initializers call


def repeated_draws() -> AbstractContextManager[None]:
    """Draw only a part of a large variable that is trained within the block, and repeat it in the rest.

    It is for models that are given other values: drawing 110 million numbers takes most of the time of building one.
    """
    return around(keras.Variable, "_initialize_with_initializer", _initialized)


def _initialized(initialize: Callable[..., None], variable: keras.Variable, initializer: Any) -> None:
    with applied(around(random, name, _drawn) for name in DRAWS if variable.trainable):
        initialize(variable, initializer)


def _drawn(draw: Callable[..., tf.Tensor], shape: Sequence[int], *args: Any, **kwargs: Any) -> tf.Tensor:
    size = int(np.prod(shape))
    if size <= construction.PART:
        return draw(shape, *args, **kwargs)
    parts = -(-size // construction.PART)
    return tf.reshape(tf.tile(draw((construction.PART,), *args, **kwargs), [parts])[:size], shape)
