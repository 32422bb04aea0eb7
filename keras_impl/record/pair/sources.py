"""Remembers where in the user's code each part of a model is made."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from parity.doctor import construction
from parity.trace.survey import Made

KINDS: tuple[type, ...] = (keras.Layer, keras.optimizers.Optimizer)


class Sources:
    """The lines that made the objects of the classes in KINDS, while they are being recorded."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Made]] = {}  # with the object, so that no other gets its id

    def of(self, made: Any) -> Made | None:
        """Return where an object was made; None if that was not recorded, or not in the user's code."""
        _, source = self._made.get(id(made), (None, None))
        return source

    def layers(self) -> Iterator[tuple[keras.Layer, Made]]:
        """Yield the layers that were made in the user's code, and where."""
        yield from (entry for entry in self._made.values() if isinstance(entry[0], keras.Layer))

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record every object that is made within the block."""
        originals = [(kind, kind.__init__) for kind in KINDS]
        for kind, original in originals:
            kind.__init__ = self._recording(original)
        try:
            yield
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
