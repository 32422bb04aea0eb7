"""Helpers for the formulas of layers: what a call must have recorded, and a quick test whether settings are far off."""

from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.formula import require
from parity.diagnose.layers.call import Call

PRECISIONS: Final = ("float64", "float32")  # to which a constant may have been rounded
FAR: Final = 2.0**-6  # fraction of the largest value; no rounding moves a value that far, not even to bfloat16


def numbers(call: Call, axes: int | None = None) -> None:
    """Require that a call's arguments and output are numbers, and have that many axes if `axes` is given."""
    require(bool(call.calls and call.inputs), "arguments")
    for array in (*call.inputs, call.output):
        require(array.dtype.kind != "b", "numbers")
        require(axes is None or array.ndim == axes, f"{axes} axes")


def parameter(call: Call, name: str, axes: int) -> Array:
    """Return a parameter that a call must have, with that many axes and not empty."""
    require(name in call.parameters, name)
    array = call.parameters[name]
    require(array.ndim == axes and array.size > 0, f"{name} with {axes} axes")
    return array


def broadcasts(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    """Return whether an array of one shape can be combined with one of the other without changing the other's."""
    pairs = zip(reversed(shape), reversed(onto), strict=False)
    return len(shape) <= len(onto) and all(size in (1, whole) for size, whole in pairs)


def optional(call: Call, name: str, onto: tuple[int, ...]) -> None:
    """Require that a parameter, if there is one of that name, broadcasts onto a shape."""
    if name in call.parameters:
        require(broadcasts(call.parameters[name].shape, onto), f"{name} that broadcasts onto {onto}")


def per_channel(call: Call, name: str, channels: int) -> None:
    """Require that a parameter, if there is one of that name, has one value or one for each channel, in any shape."""
    if name in call.parameters:
        require(call.parameters[name].size in (1, channels), f"{name} of {channels} values")


def constant(value: float, precision: str) -> float:
    """Return the value as it is after rounding to a precision."""
    return float(np.dtype(precision).type(value))


def far(computed: Array, recorded: Array) -> bool:
    """Return whether part of a computed output is so far off that the rest need not be computed."""
    if computed.shape != recorded.shape:
        return True
    difference = np.abs(computed - recorded).max(initial=0.0)
    return bool(difference > FAR * np.abs(recorded).max(initial=0.0))
