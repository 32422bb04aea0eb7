"""Show the Python stacks of ranks that wait, down to the user's lines."""

import re
from collections.abc import Sequence
from pathlib import Path

from parity.doctor import ownership
from parity.doctor.evidence.ranks import Waiting

FRAMES = 4  # number of frames that are shown
FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+),? in (?P<function>.*)')


def ended(rank: int, waiting: Sequence[Waiting]) -> bool:
    """Return whether a rank had ended its step; not if a lost connection ended it while the user's code was running."""
    return any(rank_state.ended and not _user_frames(rank_state) for rank_state in waiting if rank_state.rank == rank)


def stack(rank_state: Waiting) -> list[str]:
    """Return the user's frames as "file:line in function", the innermost first; all frames if none is the user's."""
    users = _user_frames(rank_state)
    return [_formatted(frame) for frame in (users or ([] if rank_state.ended else _frames(rank_state)))[:FRAMES]]


def _frames(rank_state: Waiting) -> list[re.Match[str]]:
    return [frame for frame in map(FRAME.match, rank_state.stack) if frame]


def _user_frames(rank_state: Waiting) -> list[re.Match[str]]:
    homes = rank_state.homes or ownership.here()  # its process may run another interpreter, with other paths
    return [frame for frame in _frames(rank_state) if homes.owner(frame["file"]) == "user"]


def _formatted(frame: re.Match[str]) -> str:
    return f"{_short(frame['file'])}:{frame['line']} in {frame['function']}"


def _short(file: str) -> str:
    """Return a path relative to the working directory if it is below that."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def line(rank: int, waiting: Sequence[Waiting]) -> str:
    """Return the innermost line of the user's code in a rank."""
    frames = [frame for rank_state in waiting if rank_state.rank == rank for frame in stack(rank_state)]
    return frames[0].partition(" in ")[0] if frames else ""


def stacks(waiting: Sequence[Waiting]) -> str:
    """Return the stacks of all ranks, one line for each frame."""
    lines = []
    for rank_state in waiting:
        lines.append(
            f"\nrank {rank_state.rank}{', which has ended its step' if ended(rank_state.rank, waiting) else ''}:"
        )
        lines += [f"\n  {frame}" for frame in stack(rank_state)]
    return "".join(lines)
