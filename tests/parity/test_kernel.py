"""The streaming kernel against plain numpy formulas in float64, whatever the dtype, offset, size and value."""

import math
import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.core.arrays import Array
from parity.verdict import kernel, stream
from parity.verdict.kernel import Runs, measure
from parity.verdict.stream import Change

FLOATS = [np.dtype(kind) for kind in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)]
DTYPES = FLOATS + [np.dtype(kind) for kind in (np.int64, np.int32, np.uint8, np.bool_)]
SPECIAL = [0.0, -0.0, 1.0, -3.0, 5e-324, 1e-200, 1e-30, 1e30, -1e200, 1e300, math.nan, math.inf, -math.inf]
STEP = 64  # elements of a float64 block in these tests; twice as many of a float32 block


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks, rows and the threads' threshold so small that short arrays cross them; every warning fails."""
    monkeypatch.setattr(kernel, "ROW", 8)
    small = {"BLOCK": STEP * 8, "THREAD_BLOCK": STEP * 8, "THREADED": 1000, "THREADS": 3}
    for name, value in small.items():
        monkeypatch.setattr(stream, name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def at_offset(array: Array, offset: int) -> Array:
    """The array as a view of a buffer at any byte offset, as a memory-mapped file hands it out."""
    buffer = bytearray(array.nbytes + offset)
    view: Array = np.ndarray(array.shape, array.dtype, buffer, offset)
    view[...] = array
    return view


@st.composite
def tensors(draw: st.DrawFn, count: int) -> list[Array]:
    """`count` arrays of one shape, each of its own dtype, scale and byte offset, some with special values."""
    shape = draw(st.sampled_from([(), (0,), (1,), (2, 0), (STEP - 1,), (STEP,), (STEP + 1,), (5, 3, STEP), (1200,)]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    arrays = []
    for _ in range(count):
        values = np.asarray(random.standard_normal(shape) * 10.0 ** draw(st.sampled_from([0, 0, -30, 200])))
        if draw(st.booleans()) and values.size:
            values.reshape(-1)[random.integers(values.size, size=2)] = random.choice(SPECIAL, 2)
        dtype = draw(st.sampled_from(DTYPES))
        if dtype not in FLOATS:
            values = np.nan_to_num(np.clip(values, 0, 100))
        with np.errstate(all="ignore"):
            arrays.append(at_offset(values.astype(dtype), draw(st.sampled_from([0, 0, 1, 8]))))
    return arrays


def plain(a: Array, b: Array) -> tuple[float, float, bool]:
    """Largest difference, L2 norm and equality in kind, by the formulas."""
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    finite = np.isfinite(x) & np.isfinite(y)
    gaps = [abs(p - q) for p, q in zip(x[finite].tolist(), y[finite].tolist(), strict=True)]
    kinds = [np.isnan(z) + 2 * np.isposinf(z) + 3 * np.isneginf(z) for z in (x, y)]
    return max(gaps, default=0.0), math.hypot(*gaps), np.array_equal(kinds[0], kinds[1])


def magnitude(a: Array) -> float:
    values = a.astype(np.float64)
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


@settings(max_examples=150)
@given(tensors(5))
def test_measure_is_the_formula(arrays: list[Array]) -> None:
    reference, candidate, reference_low, candidate_low, witness = arrays
    found = measure(Runs(*arrays))
    errors = plain(reference_low, reference), plain(candidate_low, candidate)
    low, high = plain(reference_low, candidate_low), plain(reference, candidate)
    assert found.size == reference.size
    assert found.scale == max(magnitude(reference), magnitude(candidate))
    assert found.difference == high[0]
    assert found.noise == max(low[0], errors[0][0], errors[1][0])
    assert found.reference_error == pytest.approx(errors[0][1], rel=1e-12, abs=0)
    assert found.candidate_error == pytest.approx(errors[1][1], rel=1e-12, abs=0)
    assert found.witness == plain(witness, reference)[0]
    assert (found.same_nonfinite, found.same_nonfinite_low) == (high[2], low[2])


def test_without_low_runs_there_is_no_noise() -> None:
    found = measure(Runs(np.array([1.0, -4.0]), np.array([1.5, -4.0])))
    assert found[:9] == (2, 4.0, 0.5, 0.0, 0.0, 0.0, 0.0, True, True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("offset", [0, 3])
def test_a_change_is_the_subtracted_tensor(dtype: np.dtype[Any], offset: int) -> None:
    random = np.random.default_rng(1)
    now, before, other = (at_offset(random.standard_normal((3, 7, 50)).astype(dtype), offset) for _ in range(3))
    derived = now.astype(np.float64) - before.astype(np.float64)
    changed = other.astype(np.float64) - before.astype(np.float64)
    runs = Runs(Change(now, before), Change(other, before), Change(now, before), witness=Change(other, before))
    assert measure(runs) == measure(Runs(derived, changed, derived, witness=changed))
    assert measure(runs).difference > 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 2 * STEP + 1, 7 * STEP])
def test_one_changed_element_is_found_anywhere(dtype: np.dtype[Any], size: int) -> None:
    a, b = np.zeros(size, dtype), np.zeros(size, dtype)
    for place in range(size):
        b[place] = 1
        if place % STEP in (0, 1, STEP - 1):
            found = measure(Runs(a, b))
            assert (found.difference, found.scale, found.same_nonfinite) == (1.0, 1.0, True)
            assert measure(Runs(a, a, a, b)).noise == measure(Runs(a, a, b)).reference_error == 1.0
        b[place] = 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_nonfinite_element_is_found_anywhere(dtype: np.dtype[Any]) -> None:
    a = np.ones(3 * STEP, dtype)
    for place, kind in enumerate([math.nan, math.inf, -math.inf] * STEP):
        b = a.copy()
        b[place] = kind
        for runs, is_same in ((Runs(a, b, a, b), False), (Runs(b, a, b, a), False), (Runs(b, b, b, b), True)):
            found = measure(runs)
            assert (found.difference, found.noise, found.scale) == (0.0, 0.0, 1.0)
            assert found.same_nonfinite == found.same_nonfinite_low == is_same


def test_overflow_in_the_low_runs_alone_is_the_same_and_no_noise() -> None:
    high, low = np.array([1e5, 1.0]), np.array([math.inf, 1.125], np.float16)
    found = measure(Runs(high, high, low, low))
    assert (found.noise, found.reference_error, found.same_nonfinite) == (0.125, 0.125, True)
    assert not measure(Runs(high, high, low, np.array([6e4, 1.125], np.float16))).same_nonfinite_low


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power", [-40, -30, 0, 30, 38])
def test_huge_and_tiny_values_keep_their_norm(dtype: type, power: int) -> None:
    exponent = power * 8 if dtype is np.float64 else power
    a: Array = np.full(300, 3 * 10.0**exponent, dtype)
    found = measure(Runs(a, -a, -a, a))
    assert found.difference == pytest.approx(2 * float(a[0]), rel=1e-6, abs=0)
    assert found.reference_error == pytest.approx(2 * float(a[0]) * 300**0.5, rel=1e-6, abs=0)


def test_a_difference_beyond_the_largest_number_is_infinite() -> None:
    found = measure(Runs(np.array([1.5e308]), np.array([-1.5e308])))
    assert (found.difference, found.scale, found.same_nonfinite) == (math.inf, 1.5e308, True)


@pytest.mark.parametrize("threads", [1, 2, 8])  # of the last, more than there are blocks
def test_the_norm_of_many_equal_numbers_keeps_its_digits(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(stream, "THREADS", threads)
    a = np.full(3_000_000, 0.1, np.float32)
    found = measure(Runs(a, a, np.zeros_like(a)))
    assert found.reference_error == pytest.approx(math.sqrt(3e6) * float(a[0]), rel=1e-6)


def test_threads_and_blocks_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    runs = Runs(*(random.standard_normal(5_001) for _ in range(5)))
    threaded = measure(runs)
    monkeypatch.undo()
    whole = measure(runs)
    assert threaded[:-1] == pytest.approx(whole[:-1], rel=1e-13)
    assert [list(octave) for octave in threaded.octaves] == [pytest.approx(list(octave)) for octave in whole.octaves]


def test_memory_is_that_of_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(stream, "THREADS", 2)
    a: Array = np.zeros(48_000_000, np.float32)
    runs = Runs(Change(a, a), Change(a, a), a, a, a)
    buffers = len(runs) + 1
    tracemalloc.start()
    measure(runs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (buffers + 0.1) * stream.THREAD_BLOCK * stream.THREADS < a.nbytes / 3
