"""A computed value as source that gives another: by what relates the two if that is simple, else the number."""

import math
from collections.abc import Callable
from typing import Any, Final

from parity.repair.literals import code

CLOSE: Final = 1e-6
# By source with {} for what is there: what that makes of the present value.
RELATED: Final[dict[str, Callable[[float], float]]] = {
    "1 / ({})": lambda value: 1 / value,
    "-({})": lambda value: -value,
    "1 - ({})": lambda value: 1 - value,
    "({}) ** 0.5": lambda value: value**0.5 if value > 0 else math.nan,
    "({}) ** -0.5": lambda value: value**-0.5 if value > 0 else math.nan,
    "({}) ** 2": lambda value: value * value,
    "2 * ({})": lambda value: 2 * value,
    "({}) / 2": lambda value: value / 2,
}


def computed(text: str, old: Any, new: Any) -> str:
    """Return the source for the value `new`, where `text` is the source that gives the value `old`."""
    if all(type(value) in (int, float) for value in (old, new)) and old:
        for template, relation in RELATED.items():
            if math.isclose(relation(old), new, rel_tol=CLOSE):
                return template.format(text)
    return code(new)
