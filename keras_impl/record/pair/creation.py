"""The order in which a user's function creates its layers: Keras itself keeps only the order of calls."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from keras.src.ops.operation import Operation


@contextmanager
def watched() -> Iterator[dict[int, int]]:
    """Yield the number of each layer that is created within the context, by the layer's id()."""
    numbers: dict[int, int] = {}
    create, count = Operation.__init__, itertools.count()

    def counting(operation: Operation, *args: Any, **kwargs: Any) -> None:
        numbers[id(operation)] = next(count)  # the id may have been that of a layer that is gone
        create(operation, *args, **kwargs)

    with mock.patch.object(Operation, "__init__", counting):
        yield numbers
