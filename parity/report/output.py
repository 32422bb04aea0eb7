"""The files that a command writes its results to: their flags, and what is written.

A command checks the paths before its work begins, and writes the files when it ends, also where it is stopped.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from parity.core import streams
from parity.core.errors import UsageError, printable
from parity.report import as_json, files

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
        files.check(f"--{name}", path)


def write(args: argparse.Namespace, document: msgspec.Struct | dict[str, Any], makers: Makers) -> None:
    """Write the JSON document and the files that the flags name, and append the summary of a GitHub step.

    `makers` has those of the formats, and that of the summary as "markdown". Raises UsageError.
    """
    if args.json is not None:
        as_json.write(document, args.json)
    for name, path in _paths(args).items():
        if name != "json":
            files.put(f"--{name}", path, printable(makers[name]()).encode())
    if summary := os.environ.get(SUMMARY):
        _append(summary, makers["markdown"]())


def _paths(args: argparse.Namespace) -> dict[str, str]:
    """Return the files that the flags name, by the names of the flags."""
    named = {name: getattr(args, name, None) for name in ("json", *FORMATS)}
    return {name: path for name, path in named.items() if path is not None and (name, path) != ("json", "-")}


def _append(path: str, text: str) -> None:
    """Append to the summary; nobody has asked this program for it, so that a failure only prints a line."""
    try:
        files.put(SUMMARY, path, printable(text).encode(), "ab")
    except UsageError as error:
        streams.tell(f"no summary: {error}")
