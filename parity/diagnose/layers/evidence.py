"""What the modules' formulas have in common: their output, and a quick look at whether settings are far off."""

from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.observation import Call

PRECISIONS: Final = ("float64", "float32")  # that a constant may have passed through
FAR: Final = 2.0**-6  # of the largest value: no rounding leads so far away, not even that to bfloat16


def output(call: Call) -> Array:
    """What the module returned."""
    return call.seen["output"].value


def constant(value: float, precision: str) -> float:
    """As it is after passing through a precision."""
    return float(np.dtype(precision).type(value))


def far(made: Array, wanted: Array) -> bool:
    """Whether a part of the output is nothing like what was seen, so that the rest need not be computed."""
    if made.shape != wanted.shape:
        return True
    apart = np.abs(made - wanted).max(initial=0.0)
    return bool(apart > FAR * np.abs(wanted).max(initial=0.0))
