"""The process of a command: its standard streams, and how Ctrl-C, SIGTERM and SIGHUP end it.

The streams may be closed, full, unread, or in an encoding with few characters. A signal ends a command with one line on
stderr and the status 128 + signal, and leaves no processes or files behind. While a program still imports its modules
there is nothing to clean up, so a signal ends it at once. Afterwards a signal is raised as `Stopped` in the main
thread, so that every `with` block on the way out ends processes and deletes files.
"""

import codecs
import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

PLAIN = {"≈": "~", "→": "->", "…": "...", "µ": "u"}
MEANINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
TIDYING = 3.0  # seconds for which further signals are ignored, so that they do not interrupt the cleanup


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream's encoding cannot represent (a codec error handler)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("parity.plain", _plain)


def prepare_streams() -> None:
    """Make both streams accept every character, and open standard streams that are closed.

    The next file that the program opens would otherwise get a closed stream's descriptor, and receive what is printed.
    Printing to a closed stdout raises OSError, as on a full device; what is printed to a closed stderr is dropped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Opens as descriptor `number`, the lowest free one. Read-only for stdout, so that writing to it fails.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    sys.stdout = sys.stdout or io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(2, "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="parity.plain")


def tell(line: str) -> None:
    """Print a line on stderr if it can be written to."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def abandon_output() -> None:
    """Discard buffered output that cannot be written, about which the interpreter would complain when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
