"""How far a tensor's runs are apart, in one pass over memory.

The runs' tensors are cut into blocks that stay in cache. In each block, every pair of runs asked for
is subtracted into one reused buffer and reduced to a largest magnitude and an L2 norm; these are
joined over the blocks. Memory is that of a few blocks, whatever the tensors' size: the pages of mapped files are
let go of behind the blocks.

Differences are taken where both values are finite. That the others agree in kind (NaN, +inf, -inf)
is what `same_nonfinite` says. Integers are compared as float64, exactly up to 2^53.
"""

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.trace.pages import blocks, release

Array = NDArray[Any]
Pair = tuple[int, int]  # the places of two tensors to subtract; one place twice is that tensor alone

# Bytes, measured: one thread wants its buffers in L2 and few pages to touch first; several threads wait for the
# interpreter's lock over blocks that small.
BLOCK, THREAD_BLOCK = 1 << 19, 1 << 22
THREADED = 1 << 21  # elements from which threads pay
THREADS = min(os.cpu_count() or 1, 4)
# Elements of one dot product: too few for BLAS to start threads inside ours (half as fast), or for a float32 sum
# to lose its digits.
ROW = 1 << 12
# Squares of magnitudes from 1 / SAFE to SAFE neither overflow nor vanish, summed over a row.
SAFE = {np.dtype(kind): float(np.finfo(kind).max) ** 0.4 for kind in (np.float32, np.float64)}


class Change(NamedTuple):
    """A tensor derived as `now - before`, never as a whole."""

    now: Array
    before: Array

    @property
    def size(self) -> int:
        return self.now.size


Tensor = Array | Change


class Runs(NamedTuple):
    """One tensor in every run that there is; row-major, all of one shape."""

    reference_high: Tensor
    candidate_high: Tensor
    reference_low: Tensor | None = None
    candidate_low: Tensor | None = None
    witness: Tensor | None = None


class Spread(NamedTuple):
    """How far the runs of a tensor are apart."""

    size: int
    scale: float  # largest magnitude in the high runs
    difference: float  # largest |reference_high - candidate_high|
    noise: float  # largest of |reference_low - candidate_low| and of |low - high| on each side
    reference_error: float  # L2 norm of reference_low - reference_high
    candidate_error: float  # L2 norm of candidate_low - candidate_high
    witness: float  # largest |witness - reference_high|
    same_nonfinite: bool  # high run against high run
    same_nonfinite_low: bool  # low run against low run


class Difference(NamedTuple):
    """How far two arrays are apart."""

    largest: float  # of |a - b|
    squares: float  # sum of (a - b)^2
    scale: float  # largest |a|
    same_nonfinite: bool


class _Size(NamedTuple):
    largest: float = 0.0
    norm: float = 0.0
    same_nonfinite: bool = True


def measure(runs: Runs) -> Spread:
    """How far the runs are apart, in float64."""
    pairs = (0, 0), (1, 1), (0, 1), (2, 3), (2, 0), (3, 1), (4, 0)
    sizes = _stream(runs, pairs, np.dtype(np.float64))
    reference, candidate, high, low, reference_error, candidate_error, witness = sizes
    return Spread(
        size=runs.reference_high.size,
        scale=max(reference.largest, candidate.largest),
        difference=high.largest,
        noise=max(low.largest, reference_error.largest, candidate_error.largest),
        reference_error=reference_error.norm,
        candidate_error=candidate_error.norm,
        witness=witness.largest,
        same_nonfinite=high.same_nonfinite,
        same_nonfinite_low=low.same_nonfinite,
    )


def difference(a: Array, b: Array) -> Difference:
    """How far two arrays are apart, in float32 if it holds both dtypes, else in float64.

    float32 is sound: a difference is rounded once, by at most 2^-24 of itself, and is zero only for equal values.
    """
    narrow = np.can_cast(a.dtype, np.float32) and np.can_cast(b.dtype, np.float32)
    scale, apart = _stream((a, b), ((0, 0), (0, 1)), np.dtype(np.float32 if narrow else np.float64))
    return Difference(apart.largest, apart.norm * apart.norm, scale.largest, apart.same_nonfinite)


def sign_changes(one: Array, other: Array) -> int:
    """How many elements are positive in one array and not in the other."""
    return sum(int(np.count_nonzero((a > 0) != (b > 0))) for a, b in blocks(one, other, size=BLOCK // 8))


def _stream(tensors: Sequence[Tensor | None], pairs: Sequence[Pair], dtype: np.dtype[Any]) -> list[_Size]:
    """The sizes of the pairs. Threads take turns at the blocks: numpy computes without the interpreter's lock."""
    size = max(tensor.size for tensor in tensors if tensor is not None)
    threads = THREADS if size >= THREADED else 1
    step = min((BLOCK if threads == 1 else THREAD_BLOCK) // dtype.itemsize, max(size, 1))
    turns = [range(first * step, size, threads * step) for first in range(threads)]
    walk = partial(_walk, tensors, pairs, step, dtype)
    if threads == 1:
        return walk(turns[0])
    with ThreadPoolExecutor(threads) as pool:
        return [_join(sizes) for sizes in zip(*pool.map(walk, turns), strict=True)]


def _walk(
    tensors: Sequence[Tensor | None], pairs: Sequence[Pair], step: int, dtype: np.dtype[Any], starts: range
) -> list[_Size]:
    """The sizes of the pairs over the blocks at `starts`."""
    spare, *buffers = (np.empty(step, dtype) for _ in (None, *tensors))
    sources = _sources(tensors)
    found = [[_Size()] * len(pairs)]
    with np.errstate(all="ignore"):  # _size looks for what is not finite
        for start in starts:
            part = slice(start, start + step)
            loaded = [_load(tensor, part, buffer, spare) for tensor, buffer in zip(tensors, buffers, strict=True)]
            found.append([_size(loaded, pair, spare) for pair in pairs])
            release(*(source[part] for source in sources))
    return [_join(sizes) for sizes in zip(*found, strict=True)]


def _sources(tensors: Sequence[Tensor | None]) -> list[Array]:
    """The arrays that are read, flat."""
    found = [tensor if isinstance(tensor, Change) else (tensor,) for tensor in tensors if tensor is not None]
    return [array.reshape(-1) for arrays in found for array in arrays]


def _load(tensor: Tensor | None, part: slice, buffer: Array, spare: Array) -> Array | None:
    if tensor is None:
        return None
    if not isinstance(tensor, Change):
        return _cast(tensor, part, buffer)
    now, before = _cast(tensor.now, part, buffer), _cast(tensor.before, part, spare)
    return np.subtract(now, before, out=buffer[: len(now)])


def _cast(array: Array, part: slice, buffer: Array) -> Array:
    """A part in the buffer's dtype: where it lies if it has that dtype, else in the buffer."""
    block = array.reshape(-1)[part]
    if block.dtype == buffer.dtype and block.flags.aligned:
        return block
    np.copyto(buffer[: len(block)], block, casting="unsafe")
    return buffer[: len(block)]


def _size(blocks: Sequence[Array | None], pair: Pair, spare: Array) -> _Size:
    left, right = (blocks[place] for place in pair)
    if left is None or right is None:
        return _Size()
    alone, same = pair[0] == pair[1], True
    values = left if alone else np.subtract(left, right, out=spare[: len(left)])
    largest = _largest(values)
    if not math.isfinite(largest):
        values, same = _finite(left, np.zeros_like(left) if alone else right)
        largest = _largest(values)
    return _Size(largest, 0.0 if alone else _norm(values, largest), same)


def _largest(values: Array) -> float:
    """The largest magnitude; not finite if any value is not."""
    return max(float(np.maximum.reduce(values)), -float(np.minimum.reduce(values)))


def _finite(left: Array, right: Array) -> tuple[Array, bool]:
    """left - right where both are finite, else 0; and whether they are equal elsewhere. In float64, for its range."""
    finite = np.isfinite(left) & np.isfinite(right)
    values = np.where(finite, np.subtract(left, right, dtype=np.float64), 0.0)
    return values, np.array_equal(left[~finite], right[~finite], equal_nan=True)


def _norm(values: Array, largest: float) -> float:
    """The L2 norm, of values scaled by the largest where squares could overflow or vanish."""
    limit = SAFE[values.dtype]
    if largest == 0 or math.isinf(largest):
        return largest
    if not 1 / limit < largest < limit:
        return largest * _norm(values / np.float64(largest), 1.0)
    whole = len(values) // ROW * ROW
    rows, rest = values[:whole].reshape(-1, ROW), values[whole:]
    return math.sqrt(np.vecdot(rows, rows).sum(dtype=np.float64) + np.vecdot(rest, rest))


def _join(sizes: Iterable[_Size]) -> _Size:
    largest, norms, same = zip(*sizes, strict=True)
    return _Size(max(largest), math.hypot(*norms), all(same))
