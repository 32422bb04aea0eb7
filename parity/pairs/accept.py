"""--accept: what the report suggests, written into the pair's file."""

import os
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from parity.core.errors import UsageError
from parity.results import Suggestion


def accept(path: Path, suggested: list[Suggestion]) -> str:
    """Append the sections that the file does not have yet, and return them; what stands there stays as it is.

    Raises UsageError where the file cannot be written.
    """
    target = path.resolve()
    try:
        text = target.read_bytes().decode("utf-8")
        known = _sections(text)
        new = [one for one in suggested if not all(section in known for section in _sections(one.toml))]
        added = "\n".join(one.toml for one in new)
        if added:
            newline = "\r\n" if "\r\n" in text else "\n"
            whole = text.rstrip("\r\n") + newline * 2 + added.replace("\n", newline)
            _parsed(whole)
            _replace(target, whole)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--accept: {path} cannot be written: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"--accept: {path} cannot be added to ({error}); write [[expect]] where it is a list"
        ) from None
    return added


def _sections(text: str) -> list[dict[str, object]]:
    """The accepted differences of a file, without their reasons, its outputs, and its rules for weights."""
    table = _parsed(text)
    expected = [{key: value for key, value in each.items() if key != "reason"} for each in table.get("expect", [])]
    return [*expected, *({"output": name} for name in table.get("outputs", {})), *table.get("weights", [])]


def _parsed(text: str) -> dict[str, Any]:
    """The table of a file, whether or not an editor has begun it with a mark."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def _replace(path: Path, text: str) -> None:
    """Write a file beside it and give that its name, so that no half of it is ever there."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
        shutil.copymode(path, draft)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
