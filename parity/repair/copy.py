"""A copy of the user's folder in which some files are changed: all others are links to the user's own."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SKIPPED = ("__pycache__",)  # Python would write the changed files' bytecode beside the user's own
CONTEXT = 3  # lines around a change in the diff


def make(root: Path, folder: Path, changed: Mapping[Path, bytes]) -> None:
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


def diff(root: Path, changed: Mapping[Path, bytes], reasons: Sequence[str]) -> str:
    """Return the changes as a unified diff for `patch -p1` or `git apply`, with the reasons as comments at its head."""
    lines = [f"# {reason}\n" for reason in reasons]
    for path, content in sorted(changed.items()):
        before, after = (list(_lines(text.decode())) for text in ((root / path).read_bytes(), content))
        names = f"a/{path.as_posix()}", f"b/{path.as_posix()}"
        lines += _marked(difflib.unified_diff(before, after, *names, n=CONTEXT))
    return "".join(lines)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text with their ends; only a newline ends one."""
    *whole, rest = text.split("\n")
    yield from (f"{line}\n" for line in whole)
    if rest:
        yield rest


def _marked(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines of a diff, with a note after one that has no end."""
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
