"""Mistakes of the user's, told in one line: what was received, what was expected, how to mend it."""

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """A flag, a config or a file that cannot be used. Ends the program with status 2."""


class TraceError(UsageError):
    """A trace that is missing, damaged, of another schema or of another case."""


class BackendError(Exception):
    """A backend that did not run: not installed, crashed, or silent. Ends the program with status 3."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a mistyped word: " (did you mean 'x'?)", or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
