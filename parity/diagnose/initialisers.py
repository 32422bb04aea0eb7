"""Parameters that were not taken over, but initialised by their layer: what shows it, and by which initialiser.

That a parameter has nothing of what was drawn for it is no proof, since a conversion may be wrong in an
unknown way. So it must also fill the range of a known initialiser, or be one constant.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.config import schema
from parity.core.arrays import Array
from parity.diagnose.observation import Start

CONSTANTS: Final = {"zeros": 0.0, "ones": 1.0}
NORMALS: Final = {"normal(0, 1)": 1.0, "normal(0, 0.05)": 0.05, "normal(0, 0.02)": 0.02}
ENOUGH: Final = 64  # values that show a distribution
NEAR: Final = 0.01  # of the usual distance of two drawn values
COMMON: Final = 0.2  # the part of them that may be so near by chance
FOLLOWS: Final = 6.0  # standard errors by which two independent parameters may seem to be correlated
SURE: Final = 12.0  # a largest value further from the bound has a chance of e^-12


def fitting(start: Start) -> Iterator[str]:
    """The initialisers that the parameter may come from."""
    found = start.seen["parameter"].value
    for name, constant in CONSTANTS.items():
        if (found == constant).all() and not (start.drawn == constant).all():
            yield name
    drawn = start.drawn.ravel()
    if found.size >= ENOUGH and _common(found.ravel(), drawn) < COMMON and not _follows(found.ravel(), drawn):
        largest = float(np.abs(found).max())
        yield from (name for name, bound in _bounds(start) if 1 - SURE / found.size < largest / bound <= 1 + 1e-6)
        yield from (name for name, deviation in NORMALS.items() if _normal(found / deviation))


def _common(found: Array, drawn: Array) -> float:
    """The part of the values that lie much nearer to a drawn one than chance would put them."""
    drawn = np.sort(drawn)
    place = np.searchsorted(drawn, found).clip(1, drawn.size - 1)
    apart = np.minimum(np.abs(found - drawn[place - 1]), np.abs(found - drawn[place]))
    return float(np.mean(apart < NEAR * np.ptp(drawn) / drawn.size))


def _follows(found: Array, drawn: Array) -> bool:
    """Whether it is what was drawn after all, and something added to it."""
    if found.shape != drawn.shape:
        return False
    return bool(abs(np.corrcoef(found, drawn)[0, 1]) > FOLLOWS / math.sqrt(drawn.size))


def value(start: Start, name: str) -> Array:
    """The parameter as the initialiser would have made it; for random ones it is what was found."""
    if name in CONSTANTS:
        return np.full(start.drawn.shape, CONSTANTS[name])
    return start.seen["parameter"].value


def _normal(values: Array) -> bool:
    """Whether variance and fourth moment are those of the normal distribution, to four standard errors."""
    square, fourth = float(np.mean(values**2)), float(np.mean(values**4))
    return abs(square - 1) < 4 * math.sqrt(2 / values.size) and abs(fourth - 3) < 4 * math.sqrt(96 / values.size)


def _bounds(start: Start) -> Iterator[tuple[str, float]]:
    """Uniform initialisers by name, with their bounds for the shape."""
    yield "uniform(-0.05, 0.05)", 0.05
    if start.drawn.ndim < 2:
        return
    inputs, outputs = _fans(start)
    yield "glorot_uniform", math.sqrt(6 / (inputs + outputs))
    yield "kaiming_uniform(a=sqrt(5))", 1 / math.sqrt(inputs)
    yield "he_uniform", math.sqrt(6 / inputs)
    yield "lecun_uniform", math.sqrt(3 / inputs)
    if start.name.endswith("in_proj_weight"):
        yield "glorot_uniform of each", math.sqrt(6 / (inputs + outputs // 3))
    if isinstance(start.case.model, schema.Transformer) and "_proj" in start.name:
        size, heads = start.case.model.d_model, start.case.model.heads
        yield "glorot_uniform of (d, heads, size)", math.sqrt(6 / (size * (heads + size // heads)))


def _fans(start: Start) -> tuple[int, int]:
    outputs, inputs, *field = start.drawn.shape
    if start.kind == "conv_transpose2d":
        outputs, inputs = inputs, outputs
    return inputs * math.prod(field), outputs * math.prod(field)
