"""Output of a report as JSON."""

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from parity.core.errors import UsageError, printable


def check(path: str) -> None:
    """Check that a report can be written to the path, before the work begins. Raises UsageError."""
    if path == "-":
        return
    existed = Path(path).exists()
    _write(path, b"", "ab")
    if not existed:  # leave no empty file behind that looks like a report
        Path(path).unlink()


def write(report: msgspec.Struct | dict[str, Any], path: str) -> None:
    """Write a report to a file, or to stdout if `path` is "-". Raises UsageError if it cannot be written."""
    # msgspec writes NaN and infinity as null.
    text = msgspec.json.format(_encoded(report), indent=2) + b"\n"
    if path != "-":
        _write(path, text, "wb")
    elif binary := getattr(sys.stdout, "buffer", None):  # JSON is UTF-8, whatever the encoding of the terminal
        sys.stdout.flush()
        binary.write(text)
        binary.flush()
    else:
        sys.stdout.write(text.decode())


def _encoded(report: msgspec.Struct | dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(report)
    except UnicodeEncodeError:  # a name or message holds a lone surrogate, e.g. from an undecodable file name
        return msgspec.json.encode(_writable(msgspec.to_builtins(report)))


def _writable(value: Any) -> Any:
    """Return a copy of a value made of builtins in which UTF-8 can encode all strings."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {_writable(key): _writable(inner) for key, inner in value.items()}
        case list():
            return [_writable(inner) for inner in value]
    return value


def _write(path: str, content: bytes, mode: Literal["wb", "ab"]) -> None:
    try:
        with Path(path).open(mode) as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"--json={path}: cannot be written: {error}") from None
