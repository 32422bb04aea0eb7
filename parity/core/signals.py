"""What Ctrl-C, SIGTERM and SIGHUP do to a program: one line, the shell's status, nothing left behind.

While a program imports its modules there is nothing to tidy up: it says its line and is gone. Afterwards the signal
is raised as `Stopped` where the program is, so that every `with` block on the way ends processes and deletes files.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

MEANINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
TIDYING = 3.0  # seconds in which a second signal does not disturb what the first one began


class Stopped(BaseException):
    """A signal has asked the program to end. Its text: in a word, why."""

    def __init__(self, number: int) -> None:
        super().__init__(MEANINGS[signal.Signals(number)])
        self.status = 128 + number  # what a shell reports


def end_at_once(program: str) -> None:
    """From now on a signal ends the program on the spot. To be called before the imports that take long."""

    def handler(number: int, frame: FrameType | None) -> NoReturn:
        with contextlib.suppress(OSError):
            os.write(2, f"{program}: {MEANINGS[signal.Signals(number)]}\n".encode())
        os._exit(128 + number)

    _handle(handler)


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Within the block a signal raises Stopped."""
    raised = -TIDYING

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if time.monotonic() - raised > TIDYING:
            raised = time.monotonic()
            raise Stopped(number)

    before = _handle(handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _handle(handler: Callable[[int, FrameType | None], object]) -> dict[signal.Signals, signal.Handlers]:
    """Install it for the signals that are not ignored, as under nohup; returns what was there before."""
    before = {number: signal.getsignal(number) for number in MEANINGS}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    return heeded  # type: ignore[return-value]
