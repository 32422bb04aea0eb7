"""A trace's files and their JSON, read without trust: they may come from anywhere, damaged or made to harm.

A file is read only where it is a plain file of the trace's own folder: no link leads out of it, and nothing
is waited for. JSON is refused where a key stands twice, so that readers could differ in what they see, or where
a name holds what a terminal would obey.
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

Kind = TypeVar("Kind")
# Control characters, line ends, half characters, and those that turn the direction of writing around.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SPACES = dict.fromkeys(map(ord, "\t\r\n"))  # for str.translate, which leaves them out


def opened(path: Path) -> FileIO:
    """A plain file, for reading. Raises OSError for all else, a pipe, a device and a link among it."""
    # A pipe that nobody writes to would be waited for.
    file = FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"expected a file, not a pipe or a device: {path}")
    return file


def whole(path: Path, largest: int) -> bytes:
    """All of a file that is no larger. Raises OSError, and TraceError where it is larger."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise TraceError(f"{path}: {size} bytes, expected {largest} at most")
        return file.read(largest)


def stay(folder: Path, name: str) -> Path:
    """`folder`/`name`; no link on the way from the one to the other. Raises TraceError."""
    path = folder / name
    if os.path.realpath(path) != os.path.join(os.path.realpath(folder), name):
        raise TraceError(f"{path}: is a link, or in a folder that is one; expected the trace's own file")
    return path


def decoded(content: bytes, kind: type[Kind]) -> Kind:
    """JSON as a kind of struct. Raises ValueError, msgspec's and json's errors among it, and RecursionError."""
    value = msgspec.json.decode(content, type=kind)
    json.loads(content, object_pairs_hook=_unique)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> None:
    """One object of the JSON, inner ones first. Its values are let go of: they are there already."""
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} is there twice")
        seen.add(key)


def harmless(value: Any, spaced: bool = False) -> None:
    """All texts of a value made of builtins are for a terminal's eyes. `spaced`: tabs and line ends are too.

    Raises ValueError.
    """
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
