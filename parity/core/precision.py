"""The floating-point precisions by name: numpy dtype, unit roundoff, smallest normal number."""

import math
from typing import Any

import ml_dtypes
import numpy as np

HIGH = "float64"
DTYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
# Unit roundoff: half the distance from 1 to the next larger number (Higham, "Accuracy and Stability", section 2.1).
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# The smallest normal numbers. Smaller values lose digits, or become zero where a library flushes subnormals.
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


def dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype in which a trace stores tensors of a precision."""
    return DTYPES[name]


def gap(low: str) -> int:
    """Return E, the number of bits by which rounding errors shrink from `low` to float64: 29 for float32."""
    return round(math.log2(ROUNDOFF[low] / ROUNDOFF[HIGH]))
