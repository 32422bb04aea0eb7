"""Paths of modules without their numbers, by which equal layers are known."""

import re


def relative(path: str) -> str:
    """Return the last two names of a path without numbers: equal layers of two towers become equal."""
    return ".".join(pattern(path).split(".")[-2:])


def pattern(path: str) -> str:
    """Replace the numbers in a path, so that corresponding modules of equal layers become equal."""
    return re.sub(r"\d+", "#", path)
