"""Recognise parameters that were not copied from the shared initial values, but initialised by their own layer.

That a parameter has nothing in common with the values drawn for it is no proof: a conversion may be wrong in an unknown
way. So it must also fill the range of a known initialiser, or be one of its constants.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.observation import InitialParameter

CONSTANTS: Final = {"zeros": 0.0, "ones": 1.0}
NORMALS: Final = {"normal(0, 1)": 1.0, "normal(0, 0.05)": 0.05, "normal(0, 0.02)": 0.02}
ENOUGH: Final = 64  # values from which a distribution can be recognised
NEAR: Final = 0.01  # fraction of the mean distance between drawn values within which a value is near one of them
COMMON: Final = 0.2  # fraction of the values that may be near a drawn one by chance
FOLLOWS: Final = 6.0  # standard errors that the correlation of independent values may reach by chance
# The largest of n uniform values is further than SURE / n below the bound with a probability of e^-12.
SURE: Final = 12.0


def fitting(start: InitialParameter) -> Iterator[str]:
    """Yield the names of the initialisers that the parameter may come from."""
    parameter = start.seen["parameter"].value
    for name, constant in CONSTANTS.items():
        if (parameter == constant).all() and not (start.drawn == constant).all():
            yield name
    drawn = start.drawn.ravel()
    if (
        parameter.size >= ENOUGH
        and _share_near_drawn(parameter.ravel(), drawn) < COMMON
        and not _is_correlated(parameter.ravel(), drawn)
    ):
        largest = float(np.abs(parameter).max())
        yield from (name for name, bound in _bounds(start) if 1 - SURE / parameter.size < largest / bound <= 1 + 1e-6)
        yield from (name for name, deviation in NORMALS.items() if _is_normal(parameter / deviation))


def _share_near_drawn(values: Array, drawn: Array) -> float:
    """Return the fraction of the values that lie much nearer to a drawn value than chance would put them."""
    drawn = np.sort(drawn)
    positions = np.searchsorted(drawn, values).clip(1, drawn.size - 1)
    distances = np.minimum(np.abs(values - drawn[positions - 1]), np.abs(values - drawn[positions]))
    return float(np.mean(distances < NEAR * np.ptp(drawn) / drawn.size))


def _is_correlated(parameter: Array, drawn: Array) -> bool:
    """Return whether the parameter is correlated with the drawn values: it is those, with something added."""
    if parameter.shape != drawn.shape:
        return False
    return bool(abs(np.corrcoef(parameter, drawn)[0, 1]) > FOLLOWS / math.sqrt(drawn.size))


def value(start: InitialParameter, name: str) -> Array:
    """Return the parameter as an initialiser would have made it; for random initialisers, as it was recorded."""
    if name in CONSTANTS:
        return np.full(start.drawn.shape, CONSTANTS[name])
    return start.seen["parameter"].value


def _is_normal(values: Array) -> bool:
    """Return whether variance and fourth moment are those of a normal distribution, within four standard errors."""
    square, fourth = float(np.mean(values**2)), float(np.mean(values**4))
    return abs(square - 1) < 4 * math.sqrt(2 / values.size) and abs(fourth - 3) < 4 * math.sqrt(96 / values.size)


def _bounds(start: InitialParameter) -> Iterator[tuple[str, float]]:
    """Yield uniform initialisers with their bounds for the parameter's shape."""
    yield "uniform(-0.05, 0.05)", 0.05
    if start.drawn.ndim < 2:
        return
    inputs, outputs = _fans(start)
    yield "glorot_uniform", math.sqrt(6 / (inputs + outputs))
    yield "kaiming_uniform(a=sqrt(5))", 1 / math.sqrt(inputs)
    yield "he_uniform", math.sqrt(6 / inputs)
    yield "lecun_uniform", math.sqrt(3 / inputs)
    if start.name.endswith("in_proj_weight"):
        yield "glorot_uniform of q, k and v each", math.sqrt(6 / (inputs + outputs // 3))
    if (heads := start.case.model.heads) and "_proj" in start.name:
        size = inputs  # d_model
        yield "glorot_uniform of (d, heads, size)", math.sqrt(6 / (size * (heads + size // heads)))


def _fans(start: InitialParameter) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a unit (fan-in and fan-out), in PyTorch's layout of weights."""
    outputs, inputs, *field = start.drawn.shape
    if start.kind == "conv_transpose2d":
        outputs, inputs = inputs, outputs
    return inputs * math.prod(field), outputs * math.prod(field)
