"""Output of a report as JSON."""

import sys
from typing import Any

import msgspec

from parity.core.errors import printable
from parity.report import files


def write(report: msgspec.Struct | dict[str, Any], path: str) -> None:
    """Write a report to a file, or to stdout if `path` is "-". Raises UsageError if it cannot be written."""
    # msgspec writes NaN and infinity as null.
    text = msgspec.json.format(encoded(report), indent=2) + b"\n"
    if path != "-":
        files.put("--json", path, text)
    elif binary := getattr(sys.stdout, "buffer", None):  # JSON is UTF-8, whatever the encoding of the terminal
        sys.stdout.flush()
        binary.write(text)
        binary.flush()
    else:
        sys.stdout.write(text.decode())


def encoded(report: msgspec.Struct | dict[str, Any]) -> bytes:
    """Return a report as JSON without spaces."""
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
