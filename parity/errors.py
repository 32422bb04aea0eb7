"""Mistakes of the user's, told in one line: what was received, what was expected, how to mend it."""

import difflib
from collections.abc import Iterable

LONGEST = 1000  # characters of a message about a trace


class UsageError(Exception):
    """A flag, a config or a file that cannot be used. Ends the program with status 2."""


class TraceError(UsageError):
    """A trace that is missing, damaged, of another schema or of another case.

    Told in one line, whatever names the trace holds: no terminal obeys them.
    """

    def __init__(self, message: str) -> None:
        if len(message) > LONGEST:
            message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 4 :]}"
        super().__init__("".join(map(_printable, message)))


class PairError(UsageError):
    """A pair's file that is TOML, and yet says what no pair can be. `case`: the name of its case."""

    def __init__(self, case: str, message: str) -> None:
        super().__init__(message)
        self.case = case


class BackendError(Exception):
    """A backend that did not run: not installed, crashed, or silent. Ends the program with status 3."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a mistyped word: " (did you mean 'x'?)", or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def printable(text: str) -> str:
    """Return a text without the halves of characters that UTF-8 cannot hold, as odd file names have them."""
    return text.encode(errors="backslashreplace").decode()


def _printable(character: str) -> str:
    """As it is, or as Python would write it."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()
