"""Handling of Ctrl-C, SIGTERM and SIGHUP: one line on stderr, status 128 + signal, no processes or files left behind.

While a program still imports its modules there is nothing to clean up, so a signal ends it at once. Afterwards a signal
is raised as `Stopped` in the main thread, so that every `with` block on the way out ends processes and deletes files.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

MEANINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
TIDYING = 3.0  # seconds for which further signals are ignored, so that they do not interrupt the cleanup


class Stopped(BaseException):
    """Raised when a signal asks the program to end; the message names the reason, e.g. "interrupted"."""

    def __init__(self, number: int) -> None:
        super().__init__(MEANINGS[signal.Signals(number)])
        self.status = 128 + number  # what a shell reports for a program that a signal ended


def end_at_once(program: str) -> None:
    """Make signals end the program at once from now on. Call it before imports that take seconds."""

    def handler(number: int, frame: FrameType | None) -> NoReturn:
        with contextlib.suppress(OSError):
            os.write(2, f"{program}: {MEANINGS[signal.Signals(number)]}\n".encode())
        os._exit(128 + number)

    _handle(handler)


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Make signals raise Stopped within the block.

    After one has, signals are ignored behind the block too: none changes the status while the interpreter ends.
    """
    raised = -TIDYING
    stop: Stopped | None = None

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal raised, stop
        if time.monotonic() - raised > TIDYING:
            raised, stop = time.monotonic(), Stopped(number)
            raise stop

    before = _handle(handler)
    try:
        yield
    except Exception:
        if stop:  # raised while a lock was waited for, it leaves threading with "release unlocked lock"
            raise stop from None
        raise
    finally:
        for number, old in before.items():
            signal.signal(number, old if stop is None else signal.SIG_IGN)


def _handle(handler: Callable[[int, FrameType | None], object]) -> dict[signal.Signals, signal.Handlers]:
    """Install a handler for all signals that are not ignored (nohup ignores SIGHUP); return the previous handlers."""
    before = {number: signal.getsignal(number) for number in MEANINGS}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    return heeded  # type: ignore[return-value]
