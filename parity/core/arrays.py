"""Type aliases for numpy arrays, whether two results of one computation are the same, and what tells arrays apart."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
REPRODUCED = 2.0**-22  # two equal calls in float64 may differ by this fraction of the largest value


def reproduced(first: Array, second: Array, within: float = REPRODUCED) -> bool:
    """Return whether two float64 results of one computation are as near as rounding leaves them.

    `within`: by how much of the largest value they may be apart.
    """
    if first.shape != second.shape:
        return False
    if first.dtype.kind != "f" or second.dtype.kind != "f":
        return bool((first == second).all())
    both = np.isfinite(first) & np.isfinite(second)
    scale = np.abs(first, where=both, out=np.zeros(first.shape)).max(initial=0.0)
    apart = np.subtract(first, second, where=both, out=np.zeros(first.shape))
    return bool(np.abs(apart).max(initial=0.0) <= within * scale)


def digest(arrays: Iterable[tuple[str, Array]]) -> str:
    """Return the SHA-256 over names, dtypes, shapes and bytes of arrays."""
    sha = hashlib.sha256()
    for name, array in arrays:
        sha.update(f"{name}{array.dtype}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()
