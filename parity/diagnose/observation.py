"""Evidence: a recorded value, how precisely it is known, and what all observations of recorded values have in common.

An observation is what one side recorded of one computation, inputs and result. Each topic (a layer, the loss, the
optimizer) defines its own beside its formula. All arrays are float64 (integers for token ids and class ids) in
canonical form: PyTorch's names, axes and orientations.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from parity.core.arrays import Array
from parity.core.precision import ROUNDOFF

GRAIN = 8  # float64 roundoffs of the largest value by which a recomputed value may differ


class Seen(NamedTuple):
    """A recorded value, and how precisely it is known.

    Attributes:
        value: the value in the high run.
        noise: how far the side's low run was from it, at least a float32 roundoff of its largest value.
        grain: a few float64 roundoffs of it: a formula that comes this near has reproduced the value.
    """

    value: Array
    noise: float
    grain: float


class Observation(Protocol):
    """What all observations have in common."""

    @property
    def name(self) -> str:
        """Return the module, parameter or tensor that was observed."""

    @property
    def seen(self) -> Mapping[str, Seen]:
        """Return the values that a formula has to reproduce, by name."""


def seen(high: Array, low: Array | None = None, stored: float = 0.0) -> Seen:
    """Return a value of the high run as evidence.

    Args:
        high: the value in the high run.
        low: the same value in the low run.
        stored: the largest magnitude of what the value was computed from, if larger: the roundoff of a small difference
            of large numbers is that of the large ones.
    """
    high = np.asarray(high)
    if not np.issubdtype(high.dtype, np.floating):
        return Seen(high, 0.0, 0.0)
    scale = largest(high)
    noise = ROUNDOFF["float32"] * scale
    if low is not None and low.shape == high.shape and high.size:
        differences = np.abs(low.astype(np.float64) - high)
        noise = max(noise, float(differences[np.isfinite(differences)].max(initial=0.0)))
    return Seen(high, noise, GRAIN * ROUNDOFF["float64"] * max(scale, stored))


def largest(array: Array) -> float:
    """Return the largest finite magnitude in an array, 0 if it has none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
