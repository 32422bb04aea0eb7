"""Robust use of stdout and stderr, which may be closed, full, unread, or in an encoding with few characters."""

import codecs
import contextlib
import errno
import io
import os
import sys

PLAIN = {"≈": "~", "→": "->", "…": "...", "µ": "u"}
FAILED = (errno.EBADF, errno.EIO, errno.ENOSPC, errno.EPIPE)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream's encoding cannot represent (a codec error handler)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("parity.plain", _plain)


def prepare() -> None:
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


def is_output(error: OSError) -> bool:
    """Return whether an error was raised by writing to a stream (an error about a named file has a filename)."""
    return error.filename is None and error.errno in FAILED


def tell(line: str) -> None:
    """Print a line on stderr if it can be written to."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def abandon() -> None:
    """Discard buffered output that cannot be written, about which the interpreter would complain when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
