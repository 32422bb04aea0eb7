"""The elements of a tensor by octaves of magnitude, so that a large value does not hide the small ones beside it.

A mask of -1e9 or a constant channel makes the largest value of a tensor say nothing about the others. So each element
is compared with elements of about its own size. Only few elements need it: one whose difference is at most
2^-(E-9) of what storing it at the run precision costs is a match whatever the others are. The others are entered
into a table with one row per octave (the exponent of the larger of the two float64 values), together with a sample
of all elements, which says how noisy the low runs are at that size.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.core.arrays import Array
from parity.core.precision import HIGH, ROUNDOFF, SMALLEST
from parity.trace.pages import release

ROWS: Final = 2048  # the exponents of float64
LOWEST: Final = -1023  # the exponent of row 0, which holds the denormal numbers
PART: Final = 1 << 14  # elements whose limits are held at a time
SAMPLE: Final = 1024  # elements of a tensor that are looked at for their noise, whatever their difference, or more:
STRIDE: Final = 64  # every so manieth of a large one
# Noise is pooled over all smaller elements and those up to this many octaves larger: the lone smallest element of a
# tensor may be exact in the low runs by luck.
WINDOW: Final = 3
# Cancellation leaves an error of an ulp of what was subtracted. Values up to this many octaves larger may have been:
# four ulp of those are still less than a float32 ulp of the element.
REACH: Final = 26
# Of an element that is off by more than this part of itself, the low runs have lost all: as 1 - tanh(x)^2 is 0 in
# float32 where it is 2^-60, and known to an ulp of 1 in float64. Its rounding does not show in them.
LOST: Final = 0.25
LOST_ULP: Final = 64 * ROUNDOFF[HIGH]  # 32 ulp of float64: what rounding may have done to it, relative to the largest
FEW_ULP: Final = 8 * ROUNDOFF[HIGH]  # four ulp of float64, relative
TYPICAL: Final = 8.0  # times the geometric mean of errors: the larger ones, but for those that are other elements'
SLACK: Final = 9  # bits that honest rounding may lose of E
SAFE: Final = 2.0**SLACK * ROUNDOFF[HIGH]  # differences up to this, relative to the element, are a match


class Octave(NamedTuple):
    """How far the runs are apart in the elements of one size.

    `scale`: the upper end of the octave. `reach`: the largest magnitude among elements at most 2^REACH larger.
    `difference`: between the high runs. `noise`, `witness`: as in kernel.Spread, of elements of up to 2^WINDOW times
    the size. `error`: what |low - high| typically is, on the side where it is larger, in those of these elements that
    differ.
    """

    scale: float
    reach: float
    difference: float
    noise: float
    error: float
    witness: float


class Table:
    """The largest difference, noise and witness's distance in each octave, entered block by block."""

    def __init__(self) -> None:
        self._difference, self._lost, self._noise, self._witness = np.zeros((4, ROWS))
        self._exponents, self._entered = np.zeros((2, ROWS))  # of the errors of what differs: sum, and how many
        self._held = np.zeros(ROWS, np.bool_)

    def enter(self, runs: Sequence[Array | None], places: NDArray[np.intp], difference: Array | None) -> None:
        """Enter elements of one block.

        `runs`: the block in every run, in the order of kernel.Runs. `places`: the indices of the elements.
        `difference`: |reference - candidate| of the high runs at these; None for a sample, whose difference is known
        to be small or entered beside it.
        """
        chosen: list[Array | None] = [None if run is None else run[places] for run in runs]
        high, other, low, low_other, witness = chosen
        assert high is not None and other is not None
        magnitudes = np.maximum(np.abs(high), np.abs(other))
        rows = _rows(magnitudes)
        self._held[rows] = True
        if difference is not None:
            own = _own_error(chosen)
            lost = own > LOST * magnitudes
            np.maximum.at(self._lost, rows[lost], difference[lost])
            np.maximum.at(self._difference, rows[~lost], difference[~lost])
            np.add.at(self._exponents, rows, np.log2(np.maximum(own, SMALLEST[HIGH])))
            np.add.at(self._entered, rows, 1.0)
        for column, one, against in (
            (self._noise, low, high),
            (self._noise, low_other, other),
            (self._noise, low, low_other),
            (self._witness, witness, high),
        ):
            if one is not None and against is not None:
                np.maximum.at(column, rows, _finite(np.abs(one - against)))

    def join(self, other: "Table") -> None:
        """Take over what another table of the same tensor has."""
        for mine, theirs in zip(self._columns(), other._columns(), strict=True):
            np.maximum(mine, theirs, out=mine)
        self._exponents += other._exponents
        self._entered += other._entered

    def _columns(self) -> tuple[Array, ...]:
        return self._difference, self._lost, self._noise, self._witness, self._held

    def octaves(self) -> list[Octave]:
        """The octaves in which the high runs differ by more than is a match in any case, the smallest first."""
        differences = np.maximum(self._difference, np.where(self._lost > LOST_ULP * self.live(), self._lost, 0.0))
        noise, witness = np.maximum.accumulate(self._noise), np.maximum.accumulate(self._witness)
        entered = np.maximum(np.cumsum(self._entered), 1.0)
        error = TYPICAL * np.exp2(np.cumsum(self._exponents) / entered)
        held = np.flatnonzero(self._held)
        found = []
        for row in np.flatnonzero(differences).tolist():
            pooled = min(row + WINDOW, ROWS - 1)
            reach = int(held[np.searchsorted(held, row + REACH, side="right") - 1])
            found.append(
                Octave(
                    scale=_upper(row),
                    reach=_upper(reach),
                    difference=float(differences[row]),
                    noise=float(noise[pooled]),
                    error=float(error[pooled]),
                    witness=float(witness[pooled]),
                )
            )
        return found

    def live(self) -> float:
        """The upper end of the largest octave in which rounding shows, in the witness or between the sides.

        A constant that masks is larger than all that is computed, and the same in every run.
        """
        rows = np.flatnonzero((self._witness > 0) | (self._difference > 0) | (self._lost > 0))
        return _upper(int(rows[-1])) if rows.size else 0.0


def suspicious(runs: Sequence[Array | None], difference: Array, shrinks: float) -> NDArray[np.intp]:
    """Return the indices of the elements of a block whose difference is not a match in any case.

    `difference`: |reference - candidate| of the high runs. `shrinks`: 2^-(E-9), to what part of the low runs' noise
    a match has shrunk. An element is left out if its difference is at most that part of its own noise: of storing it
    at the run precision, or of its own low runs.
    """
    high = runs[0]
    assert high is not None
    parts = []
    for start in range(0, high.size, PART):
        limit = np.multiply(high[start : start + PART], SAFE)
        parts.append(np.flatnonzero(difference[start : start + PART] > np.abs(limit, out=limit)) + start)
    places = np.concatenate(parts)
    if not places.size:
        return places
    own = _own_error([None if run is None else run[places] for run in runs])
    return places[difference[places] > own * shrinks]


def _own_error(runs: Sequence[Array | None]) -> Array:
    """How far each element's low run is from its own high run, on the side where it is further."""
    high, other, low, low_other, _ = runs
    assert high is not None
    own = np.zeros(high.size)
    for rounded, exact in ((low, high), (low_other, other)):
        if rounded is not None and exact is not None:
            np.maximum(own, _finite(np.abs(rounded - exact)), out=own)
    return own


def stride(size: int) -> int:
    """Return at which distance the elements of a tensor are sampled: a power of two, which blocks are multiples of."""
    return min(1 << max(size // SAMPLE, 1).bit_length() - 1, STRIDE)


def sampled(array: Array) -> Array:
    """Return about 4 SAMPLE elements of a tensor in float64, the same of every tensor of its size."""
    flat = array.reshape(-1)
    sample: Array = flat[:: max(array.size // (4 * SAMPLE), 1)].astype(np.float64)
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
    """The upper end of an octave."""
    return float(np.ldexp(1.0, min(row + LOWEST + 1, 1023)))
