"""Work in the background that no program waits for when it ends: a child that hangs does not hold its parent."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")
WAKE = 0.5  # seconds between two looks for signals


def begun(function: Callable[[], T]) -> "Future[T]":
    """Call a function in a daemon thread; return the future of what it returns or raises.

    concurrent.futures joins its threads when the interpreter ends: after Ctrl-C it waits for a child that hangs.
    """
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # raised again where the result is asked for
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def ended(future: "Future[T]") -> T:
    """Wait for a future, waking now and then; return its result or raise what it raised.

    A signal that comes just before a wait without end does not interrupt it, and would not be heeded until it is over.
    """
    while not wait([future], timeout=WAKE).done:
        pass
    return future.result()
