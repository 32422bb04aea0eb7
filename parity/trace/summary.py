"""Summaries of large tensors: a few hundred numbers from which the verdict's rule tells what it tells of the whole.

A tensor is cut into PARTS of consecutive elements. Each part becomes a sum of its elements, times random factors of
either sign, in every class of magnitude (AMS sketch: Alon, Matias, Szegedy, "The space complexity of approximating the
frequency moments", STOC 1996). So rounding and differences of meaning keep their sizes relative to each other, and one
wrong element moves its part's sum by all that it is wrong. An element belongs to the two classes around its magnitude,
in shares that change steadily with it: a sum over a class with a hard limit would jump where rounding moves an element
across it. So large elements (a mask of -1e9) do not hide small ones. Behind the sums stand the largest magnitude of
each part, which tells differences that are everywhere from those of a few elements, and what is not finite in it.

Whole numbers must be equal, so that of those each part's hash is enough.
"""

import functools
import math
from typing import Final

import numpy as np
import xxhash

from parity.core import random
from parity.core.arrays import Array, Floats

LARGE: Final = 1 << 12  # elements up to which a tensor is kept whole
PARTS: Final = 32
WIDTH: Final = 8  # octaves from one class of magnitude to the next
OUTERMOST: Final = 8  # classes on either side of that of 1; the outermost take what is still smaller or larger
CLASSES: Final = 2 * OUTERMOST + 1
BLOCK: Final = 1 << 10  # elements of each part that are summed at a time, so that they stay in the cache
ONE: Final = 1023 << 52  # the bits of 1.0
# A difference is that of a few elements if the sums are, relatively, so many times as far apart as the largest ones.
CONCENTRATED: Final = 8.0
SUMS: Final = PARTS * CLASSES
MOST_MADE: Final = 1 << 13  # summaries that are remembered
_made: dict[tuple[bytes, str, int], Array] = {}  # by what they are of: a run that is repeated has the same tensors


class Summary(np.ndarray):
    """The summary of a tensor, which a trace holds in its place; `whole`: the tensor's shape."""

    whole: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Array, whole: tuple[int, ...]) -> "Summary":
        """Return numbers that `summary` returned for a tensor of the shape `whole`."""
        held = numbers.view(cls)
        held.whole = whole
        return held


def shape(array: Array) -> tuple[int, ...]:
    """Return the shape of a tensor that a trace holds whole or as a summary."""
    return array.whole if isinstance(array, Summary) else array.shape


def summary(array: Array) -> Array:
    """Return a summary: SUMS + 3 * PARTS numbers in float64, or the bits of PARTS hashes of whole numbers."""
    flat = array.reshape(-1)
    if array.dtype.kind in "iub":
        parts = (part.astype(np.int64) for part in np.array_split(flat, PARTS))
        hashes = np.array([xxhash.xxh3_64_intdigest(part.data) for part in parts], np.uint64)
        bits = np.unpackbits(hashes.view(np.uint8))
        return bits.astype(np.bool_ if array.dtype == np.bool_ else np.int64)
    key = xxhash.xxh3_128_digest(flat.data), array.dtype.char, flat.size
    if key not in _made:
        if len(_made) == MOST_MADE:
            del _made[next(iter(_made))]
        _made[key] = _summed(flat)
    return _made[key]


def _summed(flat: Array) -> Array:
    """Return the summary of floats."""
    length = flat.size // PARTS
    sums, further = np.zeros((PARTS, CLASSES), np.longdouble), np.zeros((PARTS, 3))
    rows, rest = flat[: PARTS * length].reshape(PARTS, length), flat[PARTS * length :].reshape(-1, 1)
    factors = _factors(length + 1)
    for start in range(0, length, BLOCK):
        _add(rows[:, start : start + BLOCK], factors[start : min(start + BLOCK, length)], start, sums, further)
    _add(rest, factors[length:], length, sums[: len(rest)], further[: len(rest)])
    return np.concatenate([sums.astype(np.float64).reshape(-1), further.T.reshape(-1)])


def is_concentrated(reference: Array, candidate: Array) -> bool:
    """Return whether two summarised tensors differ in a few elements, as far as their summaries tell."""
    apart = np.nan_to_num(reference - candidate, posinf=0.0, neginf=0.0)
    sums, elements = slice(SUMS), slice(SUMS, SUMS + PARTS)
    shares = (np.linalg.norm(apart[part]) / (np.linalg.norm(reference[part]) or 1.0) for part in (sums, elements))
    return bool(next(shares) > CONCENTRATED * next(shares))


def largest(*summaries: Array) -> float:
    """Return the largest finite magnitude among the elements of the summarised tensors."""
    return max(float(each[SUMS : SUMS + PARTS].max()) for each in summaries)


def _add(block: Array, factors: Floats, start: int, sums: Array, further: Floats) -> None:
    """Add a block of each part, which begins with its element `start`, to what is known of the part.

    `further`: each part's largest finite magnitude, what is not finite in it (NaN or an infinity, 0 if everything is),
    and a number that stands for the places of that.
    """
    values = block.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        for number in np.flatnonzero(~finite.all(axis=1)):
            places = np.flatnonzero(~finite[number])
            hashed = xxhash.xxh3_64_intdigest((places + start).data) >> 11
            further[number, 1:] += values[number, places].sum(), hashed * 2.0**-53
        values[~finite] = 0.0
    # The bits of a float64 above its mantissa are its exponent: read as a whole number, they grow as its logarithm
    # does, in straight lines between the powers of two.
    magnitudes = np.abs(values)
    np.maximum(further[:, 0], magnitudes.max(axis=1, initial=0.0), out=further[:, 0])
    levels = (magnitudes.view(np.int64) - ONE) * (2.0**-52 / WIDTH)
    np.clip(levels, -OUTERMOST, OUTERMOST, out=levels)
    levels[values == 0.0] = 0.0  # a zero adds nothing to any sum
    values *= factors
    share = np.empty_like(values)
    for level in range(math.floor(levels.min(initial=0.0)), math.ceil(levels.max(initial=0.0)) + 1):
        np.abs(np.subtract(levels, level, out=share), out=share)
        np.maximum(np.subtract(1.0, share, out=share), 0.0, out=share)
        sums[:, level + OUTERMOST] += np.multiply(share, values, out=share).sum(axis=1)


@functools.cache
def _factors(length: int) -> Floats:
    """Return the factors of the elements of each part: of either sign, between 1 and 2, so that an exchange shows."""
    drawn = random.bits(0, "summary", length)
    magnitudes = 1.0 + (drawn & np.uint64(127)) / 128.0
    return np.where(drawn >> np.uint64(63), magnitudes, -magnitudes)
