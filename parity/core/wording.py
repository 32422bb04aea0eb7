"""Counts with their nouns, and lists of names, for every text that a reader sees."""

from collections.abc import Sequence

IRREGULAR = {"axis": "axes", "is": "are", "has": "have", "was": "were", "does": "do", "it": "them"}


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 parameter", "2 parameters", "3 copies", "4 axes"."""
    return f"{number} {agree(number, noun)}"


def agree(number: int, word: str) -> str:
    """Return a singular noun or verb, or "it", as it goes with a number."""
    if number == 1:
        return word
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}{'es' if word.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Return at most so many names, separated by commas, with the number of further ones: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def fitted(name: str, width: int) -> str:
    """Return a name, cut off at its beginning if it is too long: a module's path differs most at its end."""
    return name if len(name) <= width else "…" + name[1 - width :]
