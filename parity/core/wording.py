"""Counts with their nouns, for every text that a reader sees."""

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
