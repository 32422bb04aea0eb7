"""How far a tensor's runs are apart, in one pass over memory.

The tensors are cut into blocks that stay in cache. Of each block, every term asked for (a tensor,
or the difference of two) is formed in one reused buffer and reduced to its largest magnitude and
L2 norm; the numbers of the blocks are joined. Memory is that of a few blocks, whatever the size.

Differences are taken where both values are finite. That the others agree in kind (NaN, +inf, -inf)
is what `same_nonfinite` says. Integers are compared as float64, exact up to 2^53.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Measured by benchmarks/kernel.py: smaller blocks wait for the interpreter, larger ones for memory.
BLOCK = 1 << 18  # elements
THREADED = 1 << 21  # elements for which starting threads pays
THREADS = min(os.cpu_count() or 1, 4)
# Magnitudes between 1 / SAFE and SAFE have squares that neither overflow nor vanish, summed over a block.
SAFE = {np.dtype(kind): float(np.finfo(kind).max) ** 0.4 for kind in (np.float32, np.float64)}


class Change(NamedTuple):
    """A tensor derived as `now - before`, never as a whole."""

    now: Array
    before: Array


Tensor = Array | Change


class Runs(NamedTuple):
    """One tensor in every run that there is; row-major and of one shape."""

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
    same_nonfinite: bool  # high run against high run, low against low


class Difference(NamedTuple):
    """How far two arrays are apart."""

    largest: float  # of |a - b|
    squares: float  # sum of (a - b)^2
    scale: float  # largest |a|
    same_nonfinite: bool


class _Term(NamedTuple):
    """A tensor, or the difference of two, by name; with its norm only where that is wanted."""

    left: str
    right: str | None = None
    norm: bool = False


class _Size(NamedTuple):
    """What is known of a term over some blocks."""

    largest: float = 0.0
    norm: float = 0.0
    same_nonfinite: bool = True


Sizes = dict[str, _Size]
TERMS = {
    "reference": _Term("reference_high"),
    "candidate": _Term("candidate_high"),
    "high": _Term("reference_high", "candidate_high"),
    "low": _Term("reference_low", "candidate_low"),
    "reference_error": _Term("reference_low", "reference_high", norm=True),
    "candidate_error": _Term("candidate_low", "candidate_high", norm=True),
    "witness": _Term("witness", "reference_high"),
}


def measure(runs: Runs) -> Spread:
    """How far the runs are apart, in float64."""
    tensors = {name: tensor for name, tensor in runs._asdict().items() if tensor is not None}
    terms = {name: term for name, term in TERMS.items() if {term.left, term.right or term.left} <= tensors.keys()}
    sizes = dict.fromkeys(TERMS, _Size()) | _stream(tensors, terms, np.dtype(np.float64))
    return Spread(
        size=_flat(runs.reference_high)[0].size,
        scale=max(sizes["reference"].largest, sizes["candidate"].largest),
        difference=sizes["high"].largest,
        noise=max(sizes[name].largest for name in ("low", "reference_error", "candidate_error")),
        reference_error=sizes["reference_error"].norm,
        candidate_error=sizes["candidate_error"].norm,
        witness=sizes["witness"].largest,
        same_nonfinite=sizes["high"].same_nonfinite and sizes["low"].same_nonfinite,
    )


def difference(a: Array, b: Array) -> Difference:
    """How far two arrays are apart, in float32 where it holds both dtypes, else in float64.

    float32 is sound there: only the result of a subtraction is rounded, by a factor within 1 +- 2^-24,
    and it is zero only for equal values. Sums over more than a few thousand elements are in float64.
    """
    narrow = np.can_cast(a.dtype, np.float32) and np.can_cast(b.dtype, np.float32)
    terms = {"scale": _Term("a"), "difference": _Term("a", "b", norm=True)}
    sizes = _stream({"a": a, "b": b}, terms, np.dtype(np.float32 if narrow else np.float64))
    largest, norm, same = sizes["difference"]
    return Difference(largest, norm * norm, sizes["scale"].largest, same)


def _stream(tensors: dict[str, Tensor], terms: dict[str, _Term], dtype: np.dtype[Any]) -> Sizes:
    """The terms' sizes, in consecutive spans of the tensors on as many threads."""
    flat = {name: _flat(tensor) for name, tensor in tensors.items()}
    size = next(iter(flat.values()))[0].size
    step = max(1, -(-size // THREADS)) if size >= THREADED else max(1, size)
    spans = [range(start, min(start + step, size)) for start in range(0, size, step)]
    work = partial(_walk, flat, terms, dtype)
    if len(spans) < 2:
        return reduce(_join, map(work, spans), dict.fromkeys(terms, _Size()))
    with ThreadPoolExecutor(len(spans)) as pool:  # numpy computes without the interpreter's lock
        return reduce(_join, pool.map(work, spans))


def _walk(flat: dict[str, tuple[Array, ...]], terms: dict[str, _Term], dtype: np.dtype[Any], span: range) -> Sizes:
    """The terms' sizes over one span, block by block."""
    length = min(BLOCK, len(span))
    buffers = {name: np.empty(length, dtype) for name in flat}
    spare = np.empty(length, dtype)
    total = dict.fromkeys(terms, _Size())
    with np.errstate(all="ignore"):  # what is not finite is looked at below
        for start in range(span.start, span.stop, BLOCK):
            part = slice(start, min(start + BLOCK, span.stop))
            blocks = {name: _load(tensor, part, buffers[name]) for name, tensor in flat.items()}
            total = _join(total, {name: _size(term, blocks, spare) for name, term in terms.items()})
    return total


def _flat(tensor: Tensor) -> tuple[Array, ...]:
    """The tensor as one line, or the two lines whose difference it is."""
    return tuple(array.reshape(-1) for array in (tensor if isinstance(tensor, Change) else (tensor,)))


def _load(tensor: tuple[Array, ...], part: slice, buffer: Array) -> Array:
    """A block of the tensor in the buffer's dtype: where it lies if it has that dtype, else in the buffer."""
    first, *before = (array[part] for array in tensor)
    if first.dtype == buffer.dtype and first.flags.aligned and not before:
        return first
    block = buffer[: first.size]
    if before:
        return np.subtract(first, before[0], out=block, dtype=block.dtype, casting="unsafe")
    np.copyto(block, first)
    return block


def _size(term: _Term, blocks: dict[str, Array], spare: Array) -> _Size:
    left, same = blocks[term.left], True
    right = blocks[term.right] if term.right else None
    values = left if right is None else np.subtract(left, right, out=spare[: left.size])
    largest = _largest(values)
    if not math.isfinite(largest):
        values, same = _finite(left, np.zeros_like(left) if right is None else right)
        largest = _largest(values)
    return _Size(largest, _norm(values, largest) if term.norm else 0.0, same)


def _largest(values: Array) -> float:
    """The largest magnitude; not finite if any value is not. Two readings cost less than an abs."""
    return max(float(np.maximum.reduce(values)), -float(np.minimum.reduce(values)))


def _finite(left: Array, right: Array) -> tuple[Array, bool]:
    """left - right where both are finite, else 0; and whether they agree elsewhere. Float64: float32 may overflow."""
    both = np.isfinite(left) & np.isfinite(right)
    values = np.where(both, np.subtract(left, right, dtype=np.float64), 0.0)
    return values, np.array_equal(left[~both], right[~both], equal_nan=True)


def _norm(values: Array, largest: float) -> float:
    """The L2 norm, scaled by the largest magnitude where squares could overflow or vanish."""
    limit = SAFE[values.dtype]
    if 1 / limit < largest < limit:
        return math.sqrt(np.dot(values, values))
    if largest == 0 or math.isinf(largest):
        return largest
    return largest * float(np.linalg.norm(values / np.float64(largest)))


def _join(one: Sizes, other: Sizes) -> Sizes:
    return {name: _joined(size, other[name]) for name, size in one.items()}


def _joined(one: _Size, other: _Size) -> _Size:
    same = one.same_nonfinite and other.same_nonfinite
    return _Size(max(one.largest, other.largest), math.hypot(one.norm, other.norm), same)
