"""The report as JSON."""

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from parity.core.errors import UsageError, printable


def check(place: str) -> None:
    """Ask before the work whether the report can be written there. Raises UsageError."""
    if place == "-":
        return
    there = Path(place).exists()
    _write(place, b"", "ab")
    if not there:  # an empty file is no report
        Path(place).unlink()


def write(report: msgspec.Struct | dict[str, Any], place: str) -> None:
    """Write to a file, or to stdout if `place` is "-". Raises UsageError if it cannot be written."""
    # msgspec writes NaN and infinity as null.
    text = msgspec.json.format(_encoded(report), indent=2) + b"\n"
    if place != "-":
        _write(place, text, "wb")
    elif binary := getattr(sys.stdout, "buffer", None):  # JSON is UTF-8, whatever the encoding of the terminal
        sys.stdout.flush()
        binary.write(text)
        binary.flush()
    else:
        sys.stdout.write(text.decode())


def _encoded(report: msgspec.Struct | dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(report)
    except UnicodeEncodeError:  # a name or a message that holds half a character, as of an odd file name
        return msgspec.json.encode(_writable(msgspec.to_builtins(report)))


def _writable(value: Any) -> Any:
    """Return the same of text that UTF-8 can hold."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {_writable(key): _writable(each) for key, each in value.items()}
        case list():
            return [_writable(each) for each in value]
    return value


def _write(place: str, content: bytes, mode: Literal["wb", "ab"]) -> None:
    try:
        with Path(place).open(mode) as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"--json={place}: cannot be written: {error}") from None
