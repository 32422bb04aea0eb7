"""The precisions by name: their numpy dtypes and unit roundoffs."""

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
# Half the distance from 1 to the next number (Higham, "Accuracy and Stability", section 2.1).
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# The smallest normal numbers: below them digits are lost, or the number itself where a library rounds it to zero.
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


def dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a precision, as stored in a trace."""
    return DTYPES[name]


def gap(low: str) -> int:
    """E: by how many bits rounding shrinks from `low` to float64. 29 for float32."""
    return round(math.log2(ROUNDOFF[low] / ROUNDOFF[HIGH]))
