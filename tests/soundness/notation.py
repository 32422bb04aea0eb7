"""How a step of a chain is written: "prefix:name argument ...". Free of frameworks."""

from typing import Any, NamedTuple


class Step(NamedTuple):
    """`prefix`: the runs or the mode that a step is limited to, "" for all."""

    prefix: str
    name: str
    arguments: list[Any]


def parse(text: str) -> Step:
    """A step of its text; arguments are numbers where they can be, whole ones of type int."""
    prefix, _, rest = text.rpartition(":")
    name, *words = rest.split()
    return Step(prefix, name, [_number(word) for word in words])


def runs(prefix: str, training: bool, high: bool) -> bool:
    """Whether a step of this prefix is taken in a mode, and in float64 (`high`) or below it."""
    return {"": True, "train": training, "eval": not training, "low": not high, "high": high}[prefix]


def _number(word: str) -> Any:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
