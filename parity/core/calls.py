"""The stack of the modules that are being called, and whether their calls are reported."""

import threading
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock


class CallStack(threading.local):
    """The stack of a thread: on GPUs nn.DataParallel, and always tf.distribute, run each replica in one of its own."""

    def __init__(self) -> None:
        self.running: list[Any] = []  # the innermost last
        self._is_unobserved = False

    def unobserved(self) -> AbstractContextManager[Any]:
        """Return a context in which no calls are reported."""
        return mock.patch.object(self, "_is_unobserved", True)

    def is_observed(self) -> bool:
        """Return whether calls are reported, outside of `unobserved`."""
        return not self._is_unobserved
