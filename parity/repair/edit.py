"""Edits of source: a new value in a file or in the pair's own, a copy of the folder with the edits, and their diff."""

import ast
import difflib
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parity.repair.arguments import Expression, code
from parity.repair.origins import Place
from parity.repair.source import Source, Span

SKIPPED = ("__pycache__",)  # Python would write the changed files' bytecode beside the user's own
CONTEXT = 3  # lines around a change in the diff


class Edit(NamedTuple):
    """A change of a file below the folder that is being repaired, by a path relative to that folder.

    `key`, `value`: for the pair's file, the entry of keras_kwargs. `line`: of the change, counted from 1.
    `source`: that line before the change and after it.
    """

    path: Path
    splices: tuple[tuple[Span, str], ...]
    line: int
    source: tuple[str, str]
    key: str = ""
    value: Any = None


def edit(place: Place, value: Any, root: Path) -> Edit | None:
    """Return the change that sets a value at a place; None if the place has that value, or cannot have it."""
    if place.key:
        return _argument(place, value, root)
    source = Source(place.path)
    splices = [(place.span, place.template.format(code(value)))]
    if isinstance(value, Expression) and "keras" in value and source.imported("keras") is None:
        body = source.module.body  # before the first import
        first = next((node for node in body if isinstance(node, ast.Import | ast.ImportFrom)), body[0])
        start = source.span(first).start
        splices.append((Span(start, start), "import keras\n"))
    changed = spliced(source.bytes, splices)
    line = source.line(place.span.start)
    after = changed.decode().split("\n")[line - 1 + len(splices) - 1]
    before = source.bytes.decode().split("\n")[line - 1]
    if before == after:
        return None
    return Edit(place.path.relative_to(root), tuple(splices), line, (before.strip(), after.strip()))


def spliced(text: bytes, splices: Sequence[tuple[Span, str]]) -> bytes:
    """Return a text with parts of it replaced. Raises ValueError if the parts overlap."""
    last = len(text) + 1
    for span, new in sorted(splices, reverse=True):
        if span.end > last or (span.end == last and span.start == span.end):
            raise ValueError("the changes overlap")
        text, last = text[: span.start] + new.encode() + text[span.end :], span.start
    return text


def _argument(place: Place, value: Any, root: Path) -> Edit | None:
    """Return the change of the pair's file that passes a value to Keras's builder."""
    if isinstance(value, Expression) or value is None or not place.path.is_relative_to(root):
        return None
    before = place.path.read_bytes().decode()
    after = with_argument(before, place.key, value)
    if after is None or after == before:
        return None
    pairs = zip(before.split("\n"), after.split("\n"), strict=False)
    number, lines = next((n, lines) for n, lines in enumerate(pairs) if lines[0] != lines[1])
    whole = ((Span(0, len(before.encode())), after),)
    return Edit(place.path.relative_to(root), whole, number + 1, (lines[0].strip(), lines[1].strip()), place.key, value)


def with_argument(text: str, key: str, value: Any) -> str | None:
    """Return the text of a pair's file with an argument for Keras's builder alone; None if it does not set it."""
    table = tomllib.loads(text.removeprefix("\ufeff"))
    given = table["pair"]
    if key not in {**given.get("kwargs", {}), **given.get("keras_kwargs", {})}:
        return None
    wanted = {**table, "pair": {**given, "keras_kwargs": {**given.get("keras_kwargs", {}), key: value}}}
    written = f"{key} = {_toml(value)}"
    entry = re.compile(rf"(?<![\w.-]){re.escape(key)}\s*=\s*[^,}}#\n]*[^,}}#\s]")
    attempts = [f"{text[: match.start()]}{written}{text[match.end() :]}" for match in entry.finditer(text)]
    attempts.append(re.sub(r"(keras_kwargs\s*=\s*\{)", rf"\g<1> {written},", text, count=1))
    attempts.append(re.sub(r"(\[pair\.keras_kwargs\][^\n]*\n)", rf"\g<1>{written}\n", text, count=1))
    attempts.append(re.sub(r"(\[pair\][^\n]*\n)", rf"\g<1>keras_kwargs = {{ {written} }}\n", text, count=1))
    return next((attempt for attempt in attempts if _parsed(attempt) == wanted), None)


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError:
        return None


def _toml(value: Any) -> str:
    """Return a number, a boolean, a text or a list of these as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else code(value)


def copy_folder(root: Path, folder: Path, changed: Mapping[Path, bytes]) -> None:
    """Make `folder` a copy of `root` with the contents of `changed`, by paths relative to it."""
    real = {parent for path in changed for parent in path.parents} | {Path()}
    for parent in sorted(real):
        (folder / parent).mkdir(parents=True, exist_ok=True)
        for entry in (root / parent).iterdir():
            relative = parent / entry.name
            if entry.name not in SKIPPED and relative not in real and relative not in changed:
                (folder / relative).symlink_to(entry)
    for path, content in changed.items():
        (folder / path).write_bytes(content)


def diff_of(root: Path, changed: Mapping[Path, bytes], reasons: Sequence[str]) -> str:
    """Return the changes as a unified diff for `patch -p1` or `git apply`, with the reasons as comments at its head."""
    lines = [f"# {reason}\n" for reason in reasons]
    for path, content in sorted(changed.items()):
        # As lines of a stream, which only a newline ends: str.splitlines would take a form feed for one as well.
        before, after = (list(io.StringIO(text.decode())) for text in ((root / path).read_bytes(), content))
        names = f"a/{path.as_posix()}", f"b/{path.as_posix()}"
        for line in difflib.unified_diff(before, after, *names, n=CONTEXT):
            lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)
