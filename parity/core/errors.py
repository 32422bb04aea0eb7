"""Mistakes of the user's, told in one line: what was received, what was expected, how to mend it."""

import difflib
import re
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
    """Return a hint for a mistyped or abbreviated word: " (did you mean 'x'?)", or nothing."""
    words = list(known)
    close = [each for each in words if _abbreviates(word, each)] or difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _abbreviates(word: str, name: str) -> bool:
    """Whether a word is what each part of a name begins with: lr, learn_rate or l_r for learning_rate."""
    letters = re.sub(r"[_-]", "", word.lower())
    parts = [part for part in re.split(r"[_-]+", name.lower()) if part]
    ends = {0}  # how much of the word the parts so far can account for
    for part in parts:
        ends = {end + n for end in ends for n in range(1, len(part) + 1) if letters.startswith(part[:n], end)}
    return len(parts) > 1 and len(letters) in ends


def printable(text: str) -> str:
    """Return a text without the halves of characters that UTF-8 cannot hold, as odd file names have them."""
    return text.encode(errors="backslashreplace").decode()


def _printable(character: str) -> str:
    """As it is, or as Python would write it."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()
