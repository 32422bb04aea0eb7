"""Helpers for the modules' formulas: the recorded output, and a quick test whether settings are far off."""

from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.observation import Call

PRECISIONS: Final = ("float64", "float32")  # to which a constant may have been rounded
FAR: Final = 2.0**-6  # fraction of the largest value; no rounding moves a value that far, not even to bfloat16


def output(call: Call) -> Array:
    """Return what the module returned."""
    return call.seen["output"].value


def constant(value: float, precision: str) -> float:
    """Return the value as it is after rounding to a precision."""
    return float(np.dtype(precision).type(value))


def far(computed: Array, recorded: Array) -> bool:
    """Return whether part of a computed output is so far off that the rest need not be computed."""
    if computed.shape != recorded.shape:
        return True
    difference = np.abs(computed - recorded).max(initial=0.0)
    return bool(difference > FAR * np.abs(recorded).max(initial=0.0))
