"""Write the report's suggestions into the pair's file (--accept)."""

import os
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from parity.core.errors import UsageError
from parity.results import Suggestion


def accept(path: Path, suggested: list[Suggestion]) -> str:
    """Append the suggested sections that the file does not have yet, and return what was added.

    Nothing that stands in the file is changed.

    Raises UsageError if the file cannot be written, or if a section cannot be appended to it.
    """
    target = path.resolve()
    try:
        text = target.read_bytes().decode("utf-8")
        existing = _sections(text)
        new = [
            suggestion
            for suggestion in suggested
            if not all(section in existing for section in _sections(suggestion.toml))
        ]
        added = "\n".join(suggestion.toml for suggestion in new)
        if added:
            newline = "\r\n" if "\r\n" in text else "\n"
            whole = text.rstrip("\r\n") + newline * 2 + added.replace("\n", newline)
            _parsed(whole)
            _replace(target, whole)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--accept: {path} cannot be written: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"--accept: {path} cannot be added to ({error}); if it has a line like expect = [], replace that by "
            "[[expect]] sections"
        ) from None
    return added


def _sections(text: str) -> list[dict[str, object]]:
    """Return a file's accepted differences, without their reasons, its outputs, and its rules for weights."""
    table = _parsed(text)
    expected = [
        {key: value for key, value in section.items() if key != "reason"} for section in table.get("expect", [])
    ]
    return [*expected, *({"output": name} for name in table.get("outputs", {})), *table.get("weights", [])]


def _parsed(text: str) -> dict[str, Any]:
    """Parse a file's text, which may begin with a byte order mark."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def _replace(path: Path, text: str) -> None:
    """Write a temporary file next to the target and rename it, so that the target is never half written."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
        shutil.copymode(path, draft)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
