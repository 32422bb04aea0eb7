"""The report as JSON."""

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from parity.errors import UsageError


def check(place: str) -> None:
    """Whether the report can be written there, asked before the work. Raises UsageError."""
    if place != "-":
        _write(place, b"", "ab")


def write(report: msgspec.Struct | dict[str, Any], place: str) -> None:
    """Write to a file, or to stdout if `place` is "-". Raises UsageError if it cannot be written."""
    # msgspec writes NaN and infinity as null.
    text = msgspec.json.format(msgspec.json.encode(report), indent=2)
    if place == "-":
        sys.stdout.write(text.decode() + "\n")
        return
    _write(place, text + b"\n", "wb")


def _write(place: str, content: bytes, mode: Literal["wb", "ab"]) -> None:
    try:
        with Path(place).open(mode) as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"--json={place}: cannot be written: {error}") from None
