"""The floating-point precisions by name: numpy dtype, unit roundoff, smallest normal number."""

import math
from typing import Any

import ml_dtypes  # noqa: F401 - makes bfloat16 a dtype that numpy knows by its name
import numpy as np

HIGH = "float64"
# Unit roundoff: half the distance from 1 to the next larger number (Higham, "Accuracy and Stability", section 2.1).
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# The smallest normal numbers. Smaller values lose digits, or become zero where a library flushes subnormals.
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


def dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype in which a trace stores tensors of a precision."""
    return np.dtype(name)


def gap(low: str) -> int:
    """Return E, the number of bits by which rounding errors shrink from `low` to float64: 29 for float32."""
    return round(math.log2(ROUNDOFF[low] / ROUNDOFF[HIGH]))
