"""Items in groups of one key; paths in groups of one beginning; two sequences aligned without crossings."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by key, in the order in which the keys first appear."""
    return by_key((key(item), item) for item in items)


def by_key(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of pairs by their keys, in the order in which these first appear."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def depth_of(paths: Sequence[list[str]], most: int) -> int:
    """Return by how many of their first parts the paths make at most so many groups; 1 if there are always more."""
    depths = range(max(map(len, paths), default=1), 0, -1)
    return next((depth for depth in depths if len({tuple(path[:depth]) for path in paths}) <= most), 1)


class Block(NamedTuple):
    """Neighbours in the one sequence, and neighbours in the other, that may belong together.

    They are `torch` items of the first sequence, of which the last is just before `torch_end`, and `keras` items of
    the second. `score` says how much speaks for it; a block without a positive score is never taken.
    """

    torch_end: int
    keras_end: int
    torch: int
    keras: int
    score: float


def align(torch: int, keras: int, ending: Callable[[int], Iterable[Block]], adjoining: float = 0.0) -> list[Block]:
    """Return the blocks with the highest sum of scores, in order, by dynamic programming.

    Arguments:
        torch, keras: the lengths of the sequences.
        ending: returns the blocks that are possible with a given `torch_end`. Of equally good ones the first is taken.
        adjoining: added for each block that begins where another ends, on both sides. Only the best alignment of what
            comes before a block is looked at, so that with it the sum may be a little below the highest.
    """
    scores = [[0.0] * (keras + 1) for _ in range(torch + 1)]
    taken: list[list[Block | None]] = [[None] * (keras + 1) for _ in range(torch + 1)]
    for row in range(1, torch + 1):
        possible = grouped(ending(row), lambda block: block.keras_end)
        for column in range(1, keras + 1):
            scores[row][column] = max(scores[row - 1][column], scores[row][column - 1])
            for block in possible.get(column, ()):
                before = row - block.torch, column - block.keras
                total = block.score + scores[before[0]][before[1]] + adjoining * bool(taken[before[0]][before[1]])
                if block.score > 0 and total > scores[row][column]:
                    scores[row][column], taken[row][column] = total, block
    return _path(scores, taken)


def _path(scores: list[list[float]], taken: list[list[Block | None]]) -> list[Block]:
    """Follow the blocks that were taken back from the end."""
    row, column = len(scores) - 1, len(scores[0]) - 1
    blocks = []
    while row and column:
        block = taken[row][column]
        if block:
            blocks.append(block)
            row, column = row - block.torch, column - block.keras
        elif scores[row - 1][column] == scores[row][column]:
            row -= 1
        else:
            column -= 1
    return blocks[::-1]
