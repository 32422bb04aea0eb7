"""The elements of a tensor grouped by octaves of magnitude, so that a large value does not hide small ones beside it.

With a mask of -1e9 or a constant channel, the largest value of a tensor says nothing about the other elements.
Elements are therefore compared with elements of about their own size. Only few of them need that: an element whose
difference is at most 2^-(E-9) of the rounding error of storing it at the run precision is a match whatever the others
are. The rest is entered into a table with one row per octave (the exponent of the larger of the two float64 values),
together with a sample of all elements, which shows how noisy the low runs are at each size.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.core.arrays import Array
from parity.core.precision import HIGH, ROUNDOFF, SMALLEST
from parity.trace.tensorfile import release
from parity.verdict.stream import Change, Tensor

ROWS: Final = 2048  # the exponents of float64
LOWEST: Final = -1023  # the exponent of row 0, which holds the subnormal numbers
SAMPLE: Final = 1024  # elements that are sampled at least for their noise, whatever their difference
STRIDE: Final = 64  # a large tensor's sample is every 64th element, ...
LARGEST_SAMPLE: Final = 1 << 16  # ... unless it would be larger than this
# The noise at a size is the largest over all smaller elements and those up to WINDOW octaves larger, because the only
# element of an octave may be exact in the low runs by luck.
WINDOW: Final = 3
# Cancellation leaves an error of one ulp of the numbers subtracted. They may be up to REACH octaves larger than the
# element: four ulp of such numbers are still less than a float32 ulp of the element.
REACH: Final = 26
# The low runs have lost an element completely if they are off by more than this part of it. Example: 1 - tanh(x)^2 is
# 2^-60, with an error of an ulp of 1, in float64, and 0 in float32, which therefore does not show its rounding error.
LOST: Final = 0.25
LOST_ULP: Final = 64 * ROUNDOFF[HIGH]  # 32 ulp of float64: the error such an element may have, relative to the largest
FEW_ULP: Final = 8 * ROUNDOFF[HIGH]  # four ulp of float64, relative
TYPICAL: Final = 8.0  # an error is typical up to so many times the geometric mean of the errors
SLACK: Final = 9  # bits of the E bits that honest rounding may lose
SAFE: Final = 2.0**SLACK * ROUNDOFF[HIGH]  # a difference up to this part of an element is always a match


class Octave(NamedTuple):
    """The differences between the runs in the elements of one octave."""

    scale: float  # the upper end of the octave
    reach: float  # the largest magnitude among the elements that are at most 2^REACH times as large
    difference: float  # the largest between the high runs
    noise: float  # this and `witness` as in kernel.Spread, over all elements up to 2^WINDOW times as large
    error: float  # the typical |low - high|, on the side where it is larger, of those of these elements that differ
    witness: float


class Table:
    """The largest difference, noise and distance of the witness in each octave, collected block by block."""

    def __init__(self) -> None:
        self._largest = np.zeros((5, ROWS))
        # The last two are those of elements that the low runs have lost.
        self._difference, self._noise, self._witness, self._lost_difference, self._lost_noise = self._largest
        # The sum of the exponents of the errors, and their number, for the elements that differ.
        self._sums = np.zeros((2, ROWS))
        self._exponents, self._entered = self._sums
        self._held = np.zeros(ROWS, np.bool_)

    def enter(self, runs: Sequence[Array | None], difference: Array | None) -> None:
        """Enter elements.

        `runs`: the elements in every run, in the order of kernel.Runs. `difference`: |reference - candidate| of the
        high runs; None for the sample, whose differences are either small or entered by a separate call.
        """
        high, other, low, low_other, witness = runs
        assert high is not None and other is not None
        magnitudes = np.maximum(np.abs(high), np.abs(other))
        rows = _rows(magnitudes)
        self._held[rows] = True
        own = own_error(runs[:4])
        lost = own > LOST * magnitudes
        if difference is not None:
            np.maximum.at(self._lost_difference, rows[lost], difference[lost])
            np.maximum.at(self._difference, rows[~lost], difference[~lost])
            np.add.at(self._exponents, rows, np.log2(np.maximum(own, SMALLEST[HIGH])))
            np.add.at(self._entered, rows, 1.0)
        noise = own if low is None or low_other is None else np.maximum(own, _finite(np.abs(low - low_other)))
        np.maximum.at(self._lost_noise, rows[lost], noise[lost])
        np.maximum.at(self._noise, rows, np.where(lost, np.minimum(noise, magnitudes), noise))
        if witness is not None:
            np.maximum.at(self._witness, rows, _finite(np.abs(witness - high)))

    def join(self, other: "Table") -> None:
        """Merge another table of the same tensor into this one."""
        np.maximum(self._largest, other._largest, out=self._largest)
        self._sums += other._sums
        self._held |= other._held

    def octaves(self) -> list[Octave]:
        """Return the octaves in which the high runs differ by more than what is always a match, smallest first.

        Elements that the low runs have lost, as by a comparison that made a mask of -1e30, make octaves of their own.
        """
        lost = np.where(self._lost_difference > LOST_ULP * self.live(), self._lost_difference, 0.0)
        noise_of_lost = np.maximum(self._noise, self._lost_noise)
        return self._octaves(self._difference, self._noise) + self._octaves(lost, noise_of_lost)

    def _octaves(self, differences: Array, noises: Array) -> list[Octave]:
        noise, witness = np.maximum.accumulate(noises), np.maximum.accumulate(self._witness)
        entered = np.maximum(np.cumsum(self._entered), 1.0)
        error = TYPICAL * np.exp2(np.cumsum(self._exponents) / entered)
        held = np.flatnonzero(self._held)
        octaves = []
        for row in np.flatnonzero(differences).tolist():
            pooled = min(row + WINDOW, ROWS - 1)
            reach = int(held[np.searchsorted(held, row + REACH, side="right") - 1])
            octaves.append(
                Octave(
                    scale=_upper(row),
                    reach=_upper(reach),
                    difference=float(differences[row]),
                    noise=float(noise[pooled]),
                    error=float(error[pooled]),
                    witness=float(witness[pooled]),
                )
            )
        return octaves

    def live(self) -> float:
        """Return the upper end of the largest octave in which rounding shows, in the witness or between the sides.

        A constant such as a mask's -1e9 may be larger than all computed values, but is the same in every run.
        """
        rows = np.flatnonzero((self._witness > 0) | (self._difference > 0) | (self._lost_difference > 0))
        return _upper(int(rows[-1])) if rows.size else 0.0


def exceeding(high: Array, difference: Array, limits: Array) -> NDArray[np.intp]:
    """Return the indices of the elements of a block that differ by more than rounding makes at the run precision.

    `difference`: |reference - candidate| of the high runs. `limits`: a buffer of at least as many elements.
    """
    limit = np.multiply(high, SAFE, out=limits[: high.size])
    return np.flatnonzero(difference > np.abs(limit, out=limit))


def own_error(runs: Sequence[Array | None]) -> Array:
    """Return |low - high| of each element, on the side where it is larger; the witness is not asked."""
    high, other, low, low_other = runs
    assert high is not None
    own = np.zeros(high.size)
    for rounded, exact in ((low, high), (low_other, other)):
        if rounded is not None and exact is not None:
            np.maximum(own, _finite(np.abs(rounded - exact)), out=own)
    return own


def stride(size: int) -> int:
    """Return the distance at which a tensor's elements are sampled: a power of two, which divides the block sizes."""
    every = max(min(size // SAMPLE, STRIDE), size // LARGEST_SAMPLE, 1)
    return 1 << every.bit_length() - 1


def sampled(tensor: Tensor) -> Array:
    """Return about 4 * SAMPLE elements of a tensor as float64, at the same positions for all tensors of its size."""
    if isinstance(tensor, Change):
        change: Array = sampled(tensor.now) - sampled(tensor.before)
        return change
    flat = tensor.reshape(-1)
    sample: Array = flat[:: max(tensor.size // (4 * SAMPLE), 1)].astype(np.float64)
    release(flat)
    return sample


def octave_of(values: Array) -> NDArray[np.int64]:
    """Return the exponent of each number's octave: 2^exponent is its upper end."""
    exponents: NDArray[np.int64] = _rows(np.abs(values)) + LOWEST + 1
    return exponents


def _finite(values: Array) -> Array:
    values[~np.isfinite(values)] = 0.0
    return values


def _rows(magnitudes: Array) -> Any:
    return magnitudes.view(np.int64) >> 52


def _upper(row: int) -> float:
    """Return the upper end of a row's octave."""
    return float(np.ldexp(1.0, min(row + LOWEST + 1, 1023)))
