"""Spans of time."""

from collections.abc import Iterable


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of the spans lasts, each given by its start and its end."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total
