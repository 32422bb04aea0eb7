"""Counts with their nouns, sizes, and lists of names, for every text that a reader sees."""

from collections.abc import Sequence

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
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


def size(count: int) -> str:
    """Return a number of bytes in words: "96 bytes", "1.5 KiB", "12 MiB"."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    number = f"{value:.1f}" if unit and value < 10 else f"{value:.0f}"
    return "1 byte" if count == 1 else f"{number} {UNITS[unit]}"


def listed(names: Sequence[str], most: int) -> str:
    """Return at most so many names, separated by commas, with the number of further ones: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def row(numbers: Sequence[int], most: int = 8) -> str:
    """Return at most so many numbers in a row: "1 0 2", "0 16 32 48 ..."."""
    return f"{' '.join(map(str, numbers[:most]))}{' ...' if len(numbers) > most else ''}"


def fitted(name: str, width: int) -> str:
    """Return a name, cut off at its beginning if it is too long: a module's path differs most at its end."""
    return name if len(name) <= width else "…" + name[1 - width :]
