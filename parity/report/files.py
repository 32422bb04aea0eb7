"""Writing the files that flags name: the error says which flag it was."""

from pathlib import Path
from typing import Literal

from parity.core.errors import UsageError


def check(flag: str, path: str) -> None:
    """Check that the file of a flag can be written, before the work begins. Raises UsageError."""
    existed = Path(path).exists()
    put(flag, path, b"", "ab")
    if not existed:  # leave no empty file behind that looks like a report
        Path(path).unlink()


def put(flag: str, path: str, content: bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    """Write the file of a flag. Raises UsageError if it cannot be written."""
    try:
        with Path(path).open(mode) as file:
            file.write(content)
    except (OSError, ValueError) as error:  # ValueError: the path holds a NUL character
        raise UsageError(f"{flag}={path}: cannot be written: {error}") from None
