"""What is noted of a user's layers and operations when they are created: Keras itself keeps only the order of calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from keras.src.ops.operation import Operation

Noted = TypeVar("Noted")


@contextmanager
def watched(note: Callable[[], Noted]) -> Iterator[dict[int, Noted]]:
    """Yield what `note` returns when a layer or an operation is created within the context, by its id()."""
    noted: dict[int, Noted] = {}
    create = Operation.__init__

    def noting(operation: Operation, *args: Any, **kwargs: Any) -> None:
        noted[id(operation)] = note()  # the id may have been that of one that is gone
        create(operation, *args, **kwargs)

    with mock.patch.object(Operation, "__init__", noting):
        yield noted
