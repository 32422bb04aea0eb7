"""Items in groups of one key; paths in groups of one beginning."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

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
