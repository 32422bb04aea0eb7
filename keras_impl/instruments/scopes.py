"""The tf.device scopes that the user's lines enter, and which of them are open."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.python.eager import context  # both tf.device and keras.device end up here

from keras_impl.instruments import source
from keras_impl.instruments.pretended import name
from parity.doctor.evidence.model import Move


class Scopes:
    """A context manager; `moves` lists the scopes that were entered, `open` those that are open, innermost last."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self.open: list[Move] = []
        self._patches = ExitStack()

    def __enter__(self) -> "Scopes":
        device = context.Context.device

        def watched(thread: context.Context, asked: Any) -> AbstractContextManager:
            line, wanted = source.direct(), _name(asked)
            scope = device(thread, asked)
            return self._entered(scope, Move(device=wanted, source=line)) if line and wanted else scope

        self._patches.enter_context(mock.patch.object(context.Context, "device", watched))
        return self

    def __exit__(self, *error: Any) -> None:
        self._patches.close()

    @contextmanager
    def _entered(self, scope: AbstractContextManager, move: Move) -> Iterator[None]:
        self.moves.append(move)
        self.open.append(move)
        try:
            with scope:
                yield
        finally:
            self.open.remove(move)


def _name(asked: Any) -> str:
    """Return the name of what tf.device accepts: a name, a DeviceSpec or a logical device."""
    asked = asked.to_string() if isinstance(asked, tf.DeviceSpec) else getattr(asked, "name", asked)
    return name(asked) if isinstance(asked, str) else ""
