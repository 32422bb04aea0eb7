"""The Python stacks of ranks that wait, down to the user's lines."""

import re
from collections.abc import Sequence
from pathlib import Path

from parity.doctor import ownership
from parity.doctor.evidence import Waiting

FRAMES = 4  # of a stack that are shown
FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+),? in (?P<function>.*)')


def ended(rank: int, waiting: Sequence[Waiting]) -> bool:
    """Whether a rank had ended its step: one that a lost connection ended later was still within."""
    return any(known.ended and not _users(known) for known in waiting if known.rank == rank)


def stack(known: Waiting) -> list[str]:
    """The user's frames, the innermost first, as "file:line in function"; all of them if none is the user's."""
    users = _users(known)
    return [_told(frame) for frame in (users or ([] if known.ended else _frames(known)))[:FRAMES]]


def _frames(known: Waiting) -> list[re.Match[str]]:
    return [frame for frame in map(FRAME.match, known.stack) if frame]


def _users(known: Waiting) -> list[re.Match[str]]:
    homes = known.homes or ownership.here()  # those of its process, which may be another interpreter's
    return [frame for frame in _frames(known) if homes.owner(frame["file"]) == "user"]


def _told(frame: re.Match[str]) -> str:
    return f"{_short(frame['file'])}:{frame['line']} in {frame['function']}"


def _short(file: str) -> str:
    """Relative to the working directory, if it is below that."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def line(rank: int, waiting: Sequence[Waiting]) -> str:
    """The user's innermost line in a rank."""
    frames = [frame for known in waiting if known.rank == rank for frame in stack(known)]
    return frames[0].partition(" in ")[0] if frames else ""


def stacks(waiting: Sequence[Waiting]) -> str:
    """The stacks of the ranks that wait, a line for each frame."""
    lines = []
    for known in waiting:
        lines.append(f"\nrank {known.rank}{', its step over' if ended(known.rank, waiting) else ''}:")
        lines += [f"\n  {frame}" for frame in stack(known)]
    return "".join(lines)
