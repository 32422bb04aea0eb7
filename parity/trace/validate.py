"""Defensive reading of trace files and their JSON, which may be damaged or malicious.

A file is read only if it is a plain file inside the trace's own folder: links are not followed, and pipes are not
waited for. JSON is refused if a key occurs twice, because readers would disagree on its value, or if a name holds
control characters, which a terminal would execute.
"""

import json
import os
import re
import stat
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from parity.core.errors import TraceError
from parity.core.wording import count

Kind = TypeVar("Kind")
# Control characters, line separators, lone surrogates, and characters that change the direction of writing.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SPACES = dict.fromkeys(map(ord, "\t\r\n"))  # a table for str.translate that deletes them


def opened(path: Path) -> FileIO:
    """Open a plain file for reading. Raises OSError for anything else, such as a pipe, a device or a link."""
    # O_NONBLOCK: opening a pipe that has no writer would wait for ever.
    file = FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"expected a file, not a pipe or a device: {path}")
    return file


def whole(path: Path, largest: int) -> bytes:
    """Return the content of a file of at most `largest` bytes. Raises OSError, and TraceError if it is larger."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise TraceError(f"{path}: received {count(size, 'byte')}, expected at most {largest}")
        return file.read(largest)


def stay(folder: Path, name: str) -> Path:
    """Return `folder`/`name`. Raises TraceError if a symbolic link lies below `folder` on that path."""
    path = folder / name
    if os.path.realpath(path) != os.path.join(os.path.realpath(folder), name):
        raise TraceError(f"{path}: is a symbolic link or in a linked folder; expected a file of the trace's own folder")
    return path


def decoded(content: bytes, kind: type[Kind]) -> Kind:
    """Decode JSON without duplicate keys to a struct. Raises ValueError, and RecursionError for very deep nesting."""
    value = msgspec.json.decode(content, type=kind)
    json.loads(content, object_pairs_hook=_unique)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> None:
    """Raise ValueError if a JSON object has a key twice; the values are not kept, since msgspec has decoded them."""
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} occurs twice")
        seen.add(key)


def harmless(value: Any, spaced: bool = False) -> None:
    """Raise ValueError if a string in a value holds control characters, but for tabs and line ends if `spaced`."""
    if isinstance(value, str):
        if OBEYED.search(value.translate(SPACES) if spaced else value):
            raise ValueError(f"control characters in {value!r}")
    elif isinstance(value, dict):
        for key, inner in value.items():
            harmless(key, spaced)
            harmless(inner, spaced)
    elif isinstance(value, list):
        for inner in value:
            harmless(inner, spaced)
