"""Remembers where in the user's code each part of a model is made, and what is noted of layers at their creation.

Keras itself keeps only the order of calls.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar
from unittest import mock

import keras
import tensorflow as tf
from keras import initializers
from keras.src.ops.operation import Operation

from parity.core.patches import around
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

    def has_chosen(self, weight: Any) -> bool:
        """Return whether a weight has other values than a layer begins with by default, as was recorded."""
        return self.is_changed(weight) is not False

    def _filling(self) -> Iterator[AbstractContextManager]:
        yield around(keras.Variable, "_initialize_with_initializer", self._initialize)  # at once, or later

    def _initialize(self, initialize: Callable[..., None], variable: Any, initializer: Any) -> None:
        initialize(variable, initializer)
        if _is_default(initializer):
            self._note_filled(variable)

    def _first(self, weight: Any) -> list[float]:
        with tf.init_scope():  # out of a graph that is being traced
            first: list[float] = tf.reshape(tf.convert_to_tensor(weight), [-1])[: construction.FIRST].numpy().tolist()
        return first


def _is_default(initializer: Any) -> bool:
    """Return whether an initializer is one of DEFAULTS but for DETAILS."""
    same = [each.get_config() | DETAILS for each in DEFAULTS if type(initializer) is type(each)]
    return bool(same) and initializer.get_config() | DETAILS == same[0]


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
