"""The files that a command writes its results to: their flags, and what is written, JSON above all.

A command checks the paths before its work begins, and writes the files when it ends, also where it is stopped.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from parity.core import process
from parity.core.errors import UsageError, printable

FORMATS = {
    "html": "one page that loads nothing, to be opened in a browser",
    "junit": "JUnit's XML, which CI systems show as tests",
    "sarif": "SARIF 2.1.0, what has a file and line, for code scanning",
}
SUMMARY = "GITHUB_STEP_SUMMARY"  # names the file to which a step of a GitHub workflow appends Markdown
Makers = Mapping[str, Callable[[], str]]  # by format, what makes its text


def add_flags(parser: argparse.ArgumentParser, what: str, *formats: str) -> None:
    """Add the flag of the JSON file, and those of the formats; `what` is written, e.g. "the findings"."""
    add = parser.add_argument
    add("--json", metavar="FILE", help=f"write {what} to this file; - for stdout (the text then goes to stderr)")
    for name in formats:
        add(f"--{name}", metavar="FILE", help=f"write {what} to this file: {FORMATS[name]}")


def check(args: argparse.Namespace) -> None:
    """Check that every file can be written. Raises UsageError."""
    paths = _paths(args)
    for name, path in paths.items():
        if path in ("", "-"):
            raise UsageError(f"--{name}={path}: expected the name of a file")
        if others := [other for other, same in paths.items() if other != name and Path(same) == Path(path)]:
            raise UsageError(f"--{name}={path}: --{others[0]} names the same file; give each a file of its own")
        existed = Path(path).exists()
        _put(f"--{name}", path, b"", "ab")
        if not existed:  # leave no empty file behind that looks like a report
            Path(path).unlink()


def write(args: argparse.Namespace, document: msgspec.Struct | dict[str, Any], makers: Makers) -> None:
    """Write the JSON document and the files that the flags name, and append the summary of a GitHub step.

    `makers` has those of the formats, and that of the summary as "markdown". Raises UsageError.
    """
    if args.json is not None:
        write_json(document, args.json)
    for name, path in _paths(args).items():
        if name != "json":
            _put(f"--{name}", path, printable(makers[name]()).encode())
    if summary := os.environ.get(SUMMARY):
        text = printable(makers["markdown"]()).encode()
        try:
            _put(SUMMARY, summary, text, "ab")
        except UsageError as error:  # nobody has asked this program for it, so that a failure only prints a line
            process.tell(f"no summary: {error}")


def _paths(args: argparse.Namespace) -> dict[str, str]:
    """Return the files that the flags name, by the names of the flags."""
    named = {name: getattr(args, name, None) for name in ("json", *FORMATS)}
    return {name: path for name, path in named.items() if path is not None and (name, path) != ("json", "-")}


def _put(flag: str, path: str, content: bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    """Write the file of a flag. Raises UsageError if it cannot be written."""
    try:
        with Path(path).open(mode) as file:
            file.write(content)
    except (OSError, ValueError) as error:  # ValueError: the path holds a NUL character
        raise UsageError(f"{flag}={path}: cannot be written: {error}") from None


def write_json(report: msgspec.Struct | dict[str, Any], path: str) -> None:
    """Write a report to a file, or to stdout if `path` is "-". Raises UsageError if it cannot be written."""
    # msgspec writes NaN and infinity as null.
    text = msgspec.json.format(as_json(report), indent=2) + b"\n"
    if path != "-":
        _put("--json", path, text)
    elif binary := getattr(sys.stdout, "buffer", None):  # JSON is UTF-8, whatever the encoding of the terminal
        sys.stdout.flush()
        binary.write(text)
        binary.flush()
    else:
        sys.stdout.write(text.decode())


def as_json(report: msgspec.Struct | dict[str, Any]) -> bytes:
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
