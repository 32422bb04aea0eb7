"""The differences between the runs of a tensor, computed in one pass over memory.

The tensors are cut into blocks that fit into the cache. In each block, the required pairs of runs are subtracted into
one reused buffer and reduced to the largest magnitude and the L2 norm; the results of all blocks are then joined.
Memory stays at a few blocks, whatever the size of the tensors: the pages of mapped files are released after each.

Differences are taken where both values are finite. `same_nonfinite` tells whether the other positions agree
(NaN, +inf, -inf). Integers are compared as float64, which is exact up to 2^53.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.core.precision import gap
from parity.trace.tensorfile import blocks
from parity.verdict.octaves import SLACK, Octave, Table, exceeding, own_error, stride
from parity.verdict.stream import BLOCK, Tensor, stream

# Elements per dot product: few enough that BLAS starts no threads inside ours (which halves the speed), and that a
# float32 sum keeps its accuracy.
ROW = 1 << 12
PIECE = 1 << 14  # elements that are entered at a time
CLOSE = 2.0**-48  # differences up to this part of the largest magnitude do not change it, for all that it is used for
# The squares of magnitudes from 1 / SAFE to SAFE neither overflow nor vanish when summed over a row.
SAFE = {np.dtype(kind): float(np.finfo(kind).max) ** 0.4 for kind in (np.float32, np.float64)}


class Runs(NamedTuple):
    """One tensor in every recorded run; all are row-major and of one shape."""

    reference_high: Tensor
    candidate_high: Tensor
    reference_low: Tensor | None = None
    candidate_low: Tensor | None = None
    witness: Tensor | None = None


class Spread(NamedTuple):
    """The differences between the runs of a tensor."""

    size: int
    scale: float  # largest magnitude in the high runs
    difference: float  # largest |reference_high - candidate_high|
    noise: float  # largest of |reference_low - candidate_low| and of |low - high| on each side
    reference_error: float  # L2 norm of reference_low - reference_high
    candidate_error: float  # L2 norm of candidate_low - candidate_high
    witness: float  # largest |witness - reference_high|
    same_nonfinite: bool  # high run against high run
    same_nonfinite_low: bool  # low run against low run
    reference_furthest: float = 0.0  # largest |reference_low - reference_high|
    candidate_furthest: float = 0.0
    nans: int = 0  # in the high run that has more of them
    infinite: int = 0
    nans_low: int = 0  # in the low run that has more of them
    live: float = math.inf  # upper end of the largest octave in which rounding shows; infinite if it shows in none
    octaves: Sequence[Octave] = ()  # the octaves with a difference that is not a match at any size of the others


class _Size(NamedTuple):
    largest: float = 0.0
    norm: float = 0.0
    same_nonfinite: bool = True
    nans: int = 0
    infinite: int = 0


def measure(runs: Runs, low: str = "float32") -> Spread:
    """Measure the differences between the runs of a tensor in float64; `low` is the run precision."""
    reduction = partial(_AllRuns, every=stride(runs.reference_high.size), shrinks=2.0 ** (SLACK - gap(low)))
    by_block, reductions = stream(runs, reduction, np.dtype(np.float64))
    sizes = map(_join, zip(*by_block, strict=True))
    reference, candidate, high, low_runs, reference_error, candidate_error, witness = sizes
    table = reductions[0].table
    for other in reductions[1:]:
        table.join(other.table)
    scale = max(reference.largest, candidate.largest)
    return Spread(
        size=runs.reference_high.size,
        scale=scale,
        difference=high.largest,
        noise=max(low_runs.largest, reference_error.largest, candidate_error.largest),
        reference_error=reference_error.norm,
        candidate_error=candidate_error.norm,
        witness=witness.largest,
        same_nonfinite=high.same_nonfinite,
        same_nonfinite_low=low_runs.same_nonfinite,
        reference_furthest=reference_error.largest,
        candidate_furthest=candidate_error.largest,
        nans=max(reference.nans, candidate.nans),
        infinite=max(reference.infinite, candidate.infinite),
        nans_low=max(reference_error.nans, candidate_error.nans),
        live=table.live() or math.inf,
        octaves=table.octaves(),
    )


def sign_changes(left: Array, right: Array, least: float = 0.0) -> int:
    """Count the elements that are positive in exactly one of two arrays; ignore those below `least` in both."""
    parts = blocks(left, right, size=BLOCK // 8)
    changed = (((a > 0) != (b > 0)) & ((np.abs(a) >= least) | (np.abs(b) >= least)) for a, b in parts)
    return sum(map(int, map(np.count_nonzero, changed)))


class _AllRuns:
    """The reduction for a Spread; elements that must be compared at their own scale are entered into the table."""

    def __init__(self, step: int, dtype: np.dtype[Any], every: int, shrinks: float) -> None:
        self.table, self._every, self._shrinks = Table(), every, shrinks
        self._half = 1 << max(step - 1, 1).bit_length() - 1  # a multiple of `every`, which is a power of two too
        self.spare = np.empty(2 * self._half, dtype)

    def __call__(self, blocks: list[Array | None]) -> list[_Size]:
        reference, candidate, low, low_candidate, witness = blocks
        apart = [
            _apart(low, low_candidate, self.spare),
            _apart(low, reference, self.spare, norm=True),
            _apart(low_candidate, candidate, self.spare, norm=True),
            _apart(witness, reference, self.spare),
        ]
        starts = range(0, self.spare.size, self._half)
        high = _join([self._high(_taken(blocks, slice(start, start + self._half))) for start in starts])
        if high.largest:
            self.table.enter(_taken(blocks, slice(None, None, self._every)), None)
        size = _alone(reference)
        is_finite = high.same_nonfinite and not size.nans and not size.infinite
        is_close = is_finite and high.largest <= CLOSE * size.largest
        return [size, size if is_close else _alone(candidate), high, *apart]

    def _high(self, blocks: list[Array | None]) -> _Size:
        """Return the difference of the high runs in half a block, and enter the elements where it may be no match.

        One half of the spare buffer holds the differences, the other half their limits.
        """
        reference, candidate, *_ = blocks
        assert reference is not None
        size = _apart(reference, candidate, self.spare, magnitudes=True)
        if size.largest:
            difference, limits = self.spare[: len(reference)], self.spare[self._half :]
            places = exceeding(reference, difference, limits)
            # A piece at a time, whose temporary arrays stay in the cache.
            for some in np.split(places, range(PIECE, places.size, PIECE)) if places.size else ():
                first, beyond = int(some[0]), int(some[-1]) + 1
                part = slice(first, beyond) if beyond - first == some.size else some
                self._enter(_taken(blocks, part), difference[part])
        return size

    def _enter(self, runs: list[Array | None], difference: Array) -> None:
        """Enter those of these elements whose difference their own low runs do not excuse."""
        chosen = difference > own_error(runs[:4]) * self._shrinks
        if chosen.all():
            self.table.enter(runs, difference)
        elif chosen.any():
            self.table.enter(_taken(runs, chosen), difference[chosen])


def count_apart(left: Array, right: Array, limit: float) -> int:
    """Count the elements by which two arrays of equal shape differ by more than `limit`; skip NaN and infinity."""
    parts = blocks(left, right, size=BLOCK // 8)
    return sum(int(np.count_nonzero(_finite(a.astype(np.float64), b)[0] > limit)) for a, b in parts)


def _taken(runs: list[Array | None], part: slice | Array) -> list[Array | None]:
    """Return a part of each of the runs that there are."""
    return [None if run is None else run[part] for run in runs]


def _alone(values: Array | None) -> _Size:
    """Return the size of a block: its largest finite magnitude, and its numbers of NaN and infinity."""
    if values is None or not values.size:
        return _Size()
    largest = _largest(values)
    if math.isfinite(largest):
        return _Size(largest)
    finite = np.abs(values[np.isfinite(values)])
    nans = int(np.isnan(values).sum())
    return _Size(float(finite.max(initial=0.0)), nans=nans, infinite=values.size - finite.size - nans)


def _apart(
    left: Array | None, right: Array | None, spare: Array, norm: bool = False, magnitudes: bool = False
) -> _Size:
    """Return the size of the difference of two blocks, with the number of NaN in `left`.

    The L2 norm is computed only if `norm` is set. With `magnitudes`, those of the differences are left in the buffer
    `spare`, 0 where a value is not finite.
    """
    if left is None or right is None or not left.size:
        return _Size()
    values = np.subtract(left, right, out=spare[: len(left)])
    largest = float(np.maximum.reduce(np.abs(values, out=values))) if magnitudes else _largest(values)
    if math.isfinite(largest):
        return _Size(largest, _norm(values, largest) if norm else 0.0)
    finite, same = _finite(left, right)
    largest, values[:] = float(np.maximum.reduce(finite)), finite
    return _Size(largest, _norm(finite, largest) if norm else 0.0, same, int(np.isnan(left).sum()))


def _largest(values: Array) -> float:
    """Return the largest magnitude, in two passes that only read: `abs` would write; not finite if any value is not."""
    return max(float(np.maximum.reduce(values)), -float(np.minimum.reduce(values)))


def _finite(left: Array, right: Array) -> tuple[Array, bool]:
    """Return |left - right| in float64 where both are finite, else 0; and whether all other positions agree."""
    finite = np.isfinite(left) & np.isfinite(right)
    values = np.where(finite, np.abs(np.subtract(left, right, dtype=np.float64)), 0.0)
    return values, np.array_equal(left[~finite], right[~finite], equal_nan=True)


def _norm(values: Array, largest: float) -> float:
    """Return the L2 norm; scale the values by the largest one first if their squares could overflow or vanish."""
    limit = SAFE[values.dtype]
    if largest == 0 or math.isinf(largest):
        return largest
    if not 1 / limit < largest < limit:
        return largest * _norm(values / np.float64(largest), 1.0)
    whole = len(values) // ROW * ROW
    rows, rest = values[:whole].reshape(-1, ROW), values[whole:]
    return math.sqrt(np.vecdot(rows, rows).sum(dtype=np.float64) + np.vecdot(rest, rest))


def _join(sizes: Iterable[_Size]) -> _Size:
    """Return the size of a whole tensor, or difference, from those of its blocks."""
    largest, norms, same, nans, infinite = zip(*sizes, strict=True)
    return _Size(max(largest), math.hypot(*norms), all(same), sum(nans), sum(infinite))
