"""The source of everything random: its bits, against plain integers, and what is made of them."""

import hashlib
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.core import precision, random

WORD = 2**64
NAMES = st.text(max_size=20)
SEEDS = st.integers(0, 2**70)
# Half the distance between neighbours at 1, and the precision's digits: explicit, so as not to ask the code itself.
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def splitmix(state: int, size: int) -> list[int]:
    """The reference implementation (S. Vigna, splitmix64.c), in Python's own integers."""
    words = []
    for _ in range(size):
        state = (state + 0x9E3779B97F4A7C15) % WORD
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        words.append(z ^ (z >> 31))
    return words


def stream(seed: int, name: str, size: int) -> list[int]:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return splitmix(int.from_bytes(digest, "little"), size)


def test_published_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test vector of the reference implementation for the seed 1234567."""
    monkeypatch.setattr(random, "_key", lambda seed, name: np.uint64(seed))
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert random.bits(1234567, "", 4).tolist() == published == splitmix(1234567, 4)
    assert random.bits(0, "", 1).tolist() == [0xE220A8397B1DCDAF]


@settings(max_examples=60)
@given(SEEDS, NAMES, st.integers(0, 40))
def test_bits_are_splitmix64(seed: int, name: str, size: int) -> None:
    assert random.bits(seed, name, size).tolist() == stream(seed, name, size)


def test_the_stream_never_changes() -> None:
    """A trace recorded today must be comparable with one recorded in years."""
    assert random.bits(0, "a", 3).tolist() == [0xBF96A94AEA8630BC, 0x28C278F8B438C5D8, 0xD220B47037767A62]
    assert [value.hex() for value in random.uniform(0, "linear1.weight", (3,), 0.5)] == [
        "0x1.1942c80000000p-4",
        "0x1.2bc8440000000p-3",
        "0x1.dc9cd00000000p-5",
    ]
    assert [value.hex() for value in random.normal(7, "embedding.weight", (3,))] == [
        "0x1.d210000000000p+0",
        "0x1.3d9a000000000p+0",
        "0x1.ff88000000000p-3",
    ]
    assert random.permutation(0, "order/0", 8).tolist() == [1, 0, 7, 3, 5, 2, 4, 6]
    moved = random.one_ulp_away(np.ones(8), 0, "witness/w")
    assert (moved > 1).astype(int).tolist() == [1, 0, 0, 0, 0, 1, 1, 0]


@settings(max_examples=40)
@given(SEEDS, st.floats(1e-3, 1e3))
def test_uniform_is_the_upper_bits_within_the_bound(seed: int, bound: float) -> None:
    values = random.uniform(seed, "u", (4, 5), bound)
    expected = [((word >> 40) + 0.5) / 2**23 - 1 for word in stream(seed, "u", 20)]
    assert values.reshape(-1).tolist() == [value * bound for value in expected]
    assert np.abs(values).max() < bound


def test_uniform_reaches_its_bounds_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    extremes = np.array([0, WORD - 1], np.uint64)
    monkeypatch.setattr(random, "bits", lambda seed, name, size: extremes)
    assert random.uniform(0, "", (2,), 1.0).tolist() == [2.0**-24 - 1, 1 - 2.0**-24]


def test_normal_is_twelve_uniforms() -> None:
    halves = [half for word in stream(5, "n", 30) for half in struct.unpack("<4H", struct.pack("<Q", word))]
    expected = [sum(h + 0.5 for h in halves[i : i + 12]) / 2**16 - 6 for i in range(0, 120, 12)]
    assert random.normal(5, "n", (10,)).tolist() == expected


def test_normal_and_uniform_are_exact_in_float32() -> None:
    for values in (random.normal(2, "exact", (50_000,)), random.uniform(2, "exact", (50_000,), 0.25)):
        assert np.array_equal(values.astype(np.float32).astype(np.float64), values)
        assert not np.array_equal(values.astype(np.float16).astype(np.float64), values)


@settings(max_examples=40)
@given(SEEDS, st.integers(0, 300))
def test_permutation_is_one(seed: int, size: int) -> None:
    order = random.permutation(seed, "p", size)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(size))


def test_permutations_shuffle_and_differ() -> None:
    one, other = random.permutation(0, "order/0", 100), random.permutation(0, "order/1", 100)
    assert one.tolist() != other.tolist()
    assert (one == np.arange(100)).sum() < 10
    places = np.array([random.permutation(seed, "p", 5) for seed in range(2000)])
    for column in places.T:  # every place sees every value equally often
        assert np.abs(np.bincount(column, minlength=5) - 400).max() < 80


@settings(max_examples=60)
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=90), SEEDS)
def test_one_ulp_away_moves_every_nonzero_value_by_one_ulp(values: list[float], seed: int) -> None:
    start = np.array(values)
    moved = random.one_ulp_away(start, seed, "w")
    for before, after in zip(start, moved, strict=True):
        if before == 0 or math.isinf(before):
            assert after == before and math.copysign(1, after) == math.copysign(1, before)
        else:
            assert after in (math.nextafter(before, math.inf), math.nextafter(before, -math.inf))


@pytest.mark.parametrize("at", DIGITS)
def test_representable_keeps_the_digits_of_the_precision(at: str) -> None:
    ulp = 2.0 ** (1 - DIGITS[at])
    values = random.representable(np.array([1 + ulp, 1 + 0.75 * ulp, -0.0, 1 / 3, 1 + 0.25 * ulp]), at)
    assert values.dtype == np.float64
    assert values[[0, 1, 4]].tolist() == [1 + ulp, 1 + ulp, 1.0]
    assert math.copysign(1, values[2]) == -1
    assert abs(values[3] - 1 / 3) <= precision.ROUNDOFF[at] / 3
    assert np.array_equal(random.representable(values, at), values)


@pytest.mark.parametrize(("at", "gap"), [("float32", 29), ("float16", 42), ("bfloat16", 45)])
def test_the_gap_between_the_precisions(at: str, gap: int) -> None:
    assert precision.gap(at) == gap == 53 - DIGITS[at]


def lowbias32(x: int) -> int:
    """C. Wellons' function (hash-prospector's README), in Python's own integers."""
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def test_the_short_hash_is_lowbias32() -> None:
    words = [0, 1, 2**31, 2**32 - 1, *map(int, random.bits(0, "words", 200) >> np.uint64(32))]
    expected = [lowbias32(word) for word in words]
    assert random.mix32(np.array(words)).tolist() == expected == [random.mix32(word) for word in words]
    assert random.mix32(2**40 + 5) == lowbias32(5)


def test_masks_are_made_of_it() -> None:
    digest = hashlib.blake2b(b"7/dropout/2/a.b", digest_size=8).digest()
    words = struct.unpack("<2I", digest)
    first, second = (lowbias32((lowbias32((word + 5) % 2**32) + 3) % 2**32) for word in words)
    counted = [lowbias32((i * 0x9E3779B9 + first) % 2**32 ^ second) >= round(0.3 * 2**32) for i in range(300)]
    assert random.keep(7, "a.b", 2, 5, 3, (300,), 0.3).tolist() == counted


def test_the_masks_never_change() -> None:
    kept = random.keep(0, "dropout", 0, 0, 0, (2, 16), 0.5).astype(int)
    assert ["".join(map(str, row)) for row in kept] == ["0111111110011010", "1000101001010111"]


@pytest.mark.parametrize("shape", [0.4, 1.0, 5.0])
def test_gamma(shape: float):
    """Its mean and its variance are the shape."""
    drawn = random.gamma(shape, random.normal(1, "n", (40_000,)), (random.bits(1, "u", 40_000) + 0.5) * 2.0**-64)
    assert drawn.min() > 0
    np.testing.assert_allclose([drawn.mean(), drawn.var()], shape, rtol=0.05)
