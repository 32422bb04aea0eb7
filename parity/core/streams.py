"""stdout and stderr as a program may find them: closed, full, read by nobody, or of an encoding with few characters."""

import codecs
import contextlib
import errno
import io
import os
import sys

PLAIN = {"≈": "~", "→": "->", "…": "...", "µ": "u"}
FAILED = (errno.EBADF, errno.EIO, errno.ENOSPC, errno.EPIPE)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Stand in for characters that the encoding of a stream does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("parity.plain", _plain)


def prepare() -> None:
    """Let both streams print every character as well as they can, and give those that are closed a place.

    Without one, the next file that the program opens would be taken for them. What is printed on a closed stdout
    fails, as on a full device; what is printed on a closed stderr is lost.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)  # takes the lowest number that is free
    sys.stdout = sys.stdout or io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(2, "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="parity.plain")


def is_output(error: OSError) -> bool:
    """Whether it was raised by writing to a stream: errors of named files have a name."""
    return error.filename is None and error.errno in FAILED


def tell(line: str) -> None:
    """Print on stderr, if that is possible."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def abandon() -> None:
    """Drop what cannot be written, at which the interpreter would complain when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
