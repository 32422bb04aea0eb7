"""Background calls in daemon threads, so that a child process that hangs does not keep its parent from exiting."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")
WAKE = 0.5  # seconds; a wait returns this often so that Python can handle signals


def begun(function: Callable[[], T]) -> "Future[T]":
    """Call a function in a daemon thread, and return the future of its result or exception.

    A ThreadPoolExecutor would not do: the interpreter joins its threads at exit, and so would wait after Ctrl-C for a
    child that hangs.
    """
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # raised again by `ended`
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def ended(future: "Future[T]") -> T:
    """Wait for a future, and return its result or raise its exception.

    The wait is done in short pieces: a signal that arrives just before an unlimited wait does not interrupt it, and
    would be handled only when the wait is over.
    """
    while not wait([future], timeout=WAKE).done:
        pass
    return future.result()
