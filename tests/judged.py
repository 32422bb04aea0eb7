"""What tests of several folders demand: of a case that is to pass, and of the settings of a process."""

from collections.abc import Callable
from typing import Any

from parity.results import CaseResult


def passes_strict(result: CaseResult) -> bool:
    """A match, and nothing that --strict would fail."""
    return result.verdict == "match" and not result.findings


def is_seen(change: Callable[[Any], object], to: Any, back: Any, settings: Callable[[], dict[str, str]]) -> bool:
    """Whether the settings of this process are others while something is changed."""
    change(back)
    before = settings()
    change(to)
    try:
        return settings() != before
    finally:
        change(back)
