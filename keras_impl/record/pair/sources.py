"""Remembers where in the user's code each part of a model is made, and what is noted of layers at their creation.

Keras itself keeps only the order of calls.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import keras
import tensorflow as tf
from keras import initializers
from keras.src.ops.operation import Operation

from parity.runtime import construction
from parity.runtime.survey import Made

KINDS: tuple[type, ...] = (keras.Layer, keras.optimizers.Optimizer)
# What layers begin with by default, where that is random.
DEFAULTS = [initializers.GlorotUniform(), initializers.RandomUniform(), initializers.Orthogonal()]
DETAILS = dict.fromkeys(("seed", "input_axes", "output_axes"))  # what initializers of one kind may have different
FILL = "_initialize_with_initializer"  # the method by which variables get their values, at once or later
FIRST = 8  # elements of a variable that are kept, to see whether it was changed


class Sources:
    """The lines that made the objects of the classes in KINDS, and what variables begin with, while it is recorded."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Made]] = {}  # with the object, so that no other gets its id
        self._begun: dict[int, tuple[keras.Variable, list[float]]] = {}  # with its first elements
        self._ended: dict[int, list[float]] = {}

    def of(self, made: Any) -> Made | None:
        """Return where an object was made; None if that was not recorded, or not in the user's code."""
        _, source = self._made.get(id(made), (None, None))
        return source

    def layers(self) -> Iterator[tuple[keras.Layer, Made]]:
        """Yield the layers that were made in the user's code, and where."""
        yield from (entry for entry in self._made.values() if isinstance(entry[0], keras.Layer))

    def has_chosen(self, weight: Any) -> bool:
        """Return whether a weight has other values than a layer begins with by default, as was recorded."""
        _, begun = self._begun.get(id(weight), (None, None))
        return begun is None or begun != self._ended[id(weight)]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record every object that is made within the block."""
        originals = [(kind, kind.__init__) for kind in KINDS]
        for kind, original in originals:
            kind.__init__ = self._recording(original)
        try:
            with mock.patch.object(keras.Variable, FILL, self._beginning(getattr(keras.Variable, FILL))):
                yield
            self._ended = {key: _first(variable) for key, (variable, _) in self._begun.items()}
        finally:
            for kind, original in originals:
                kind.__init__ = original

    def _recording(self, original: Any) -> Any:
        def initialise(made: Any, *args: Any, **kwargs: Any) -> None:
            if id(made) not in self._made and (source := construction.made(made)):
                self._made[id(made)] = made, source
            original(made, *args, **kwargs)

        # Keras looks up the names of the arguments, both with and without following __wrapped__.
        initialise.__signature__ = inspect.signature(original)
        return initialise

    def _beginning(self, original: Any) -> Any:
        def initialise(variable: Any, initializer: Any) -> None:
            original(variable, initializer)
            if _is_default(initializer):
                self._begun[id(variable)] = variable, _first(variable)

        return initialise


def _is_default(initializer: Any) -> bool:
    """Return whether an initializer is one of DEFAULTS but for DETAILS."""
    same = [each.get_config() | DETAILS for each in DEFAULTS if type(initializer) is type(each)]
    return bool(same) and initializer.get_config() | DETAILS == same[0]


def _first(variable: Any) -> list[float]:
    with tf.init_scope():  # out of a graph that is being traced
        first: list[float] = tf.reshape(tf.convert_to_tensor(variable), [-1])[:FIRST].numpy().tolist()
    return first


Noted = TypeVar("Noted")


@contextmanager
def noted_at_creation(note: Callable[[], Noted]) -> Iterator[dict[int, Noted]]:
    """Yield what `note` returns when a layer or an operation is created within the context, by its id()."""
    noted: dict[int, Noted] = {}
    create = Operation.__init__

    def noting(operation: Operation, *args: Any, **kwargs: Any) -> None:
        noted[id(operation)] = note()  # the id may have been that of one that is gone
        create(operation, *args, **kwargs)

    with mock.patch.object(Operation, "__init__", noting):
        yield noted
