"""The report as JSON."""

import sys
from pathlib import Path

import msgspec

from parity.errors import UsageError
from parity.results import Report


def write(report: Report, place: str) -> None:
    """Write to a file, or to stdout if `place` is "-". Raises UsageError if it cannot be written."""
    # msgspec writes NaN and infinity as null.
    text = msgspec.json.format(msgspec.json.encode(report), indent=2)
    if place == "-":
        sys.stdout.write(text.decode() + "\n")
        return
    try:
        Path(place).write_bytes(text + b"\n")
    except OSError as error:
        raise UsageError(f"--json={place}: cannot be written: {error}") from None
