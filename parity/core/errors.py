"""Exceptions whose message is shown to the user: what was received, what was expected, and how to fix it."""

import difflib
import re
from collections.abc import Iterable

MESSAGE = 400  # characters of the message of an exception in the user's code
LONGEST = 1000  # characters; a longer message about a trace is shortened in its middle


class UsageError(Exception):
    """A flag, a config or a file that cannot be used; it ends the program with status 2."""


class TraceError(UsageError):
    """A trace that is missing, damaged, of another schema or of another case.

    A trace may come from elsewhere, so control characters in the names that it holds are escaped in the message.
    """

    def __init__(self, message: str) -> None:
        if len(message) > LONGEST:
            message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 4 :]}"
        escaped = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in message)
        super().__init__("".join(escaped))


class PairError(UsageError):
    """A pair file that is readable TOML but describes no valid pair; `case` is the name of its case."""

    def __init__(self, case: str, message: str) -> None:
        super().__init__(message)
        self.case = case


class BackendError(Exception):
    """A backend that crashed or hung; it ends the program with status 3."""


class MissingError(Exception):
    """A package that an interpreter does not have, most often a framework: no case can be run on that side.

    It is not a BackendError, which is reported case by case. It ends the program with status 3.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for a mistyped or abbreviated word, " (did you mean 'x'?)", or "" if no known word is near."""
    words = list(known)
    close = [name for name in words if _abbreviates(word, name)] or difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _abbreviates(word: str, name: str) -> bool:
    """Return whether a word joins beginnings of all parts of a name: lr, learn_rate or l_r for learning_rate."""
    letters = re.sub(r"[_-]", "", word.lower())
    parts = [part for part in re.split(r"[_-]+", name.lower()) if part]
    ends = {0}  # the numbers of letters that beginnings of the parts so far can spell
    for part in parts:
        ends = {end + n for end in ends for n in range(1, len(part) + 1) if letters.startswith(part[:n], end)}
    return len(parts) > 1 and len(letters) in ends


def printable(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates, as in undecodable file names, are escaped."""
    return text.encode(errors="backslashreplace").decode()
