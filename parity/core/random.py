"""The one source of everything random: weights, data, order. Counter-based, keyed by seed and name.

Element i of the stream (seed, name) is a hash of a key and of i alone, so that two processes draw
the same numbers without exchanging any, whatever their order, layout and machine. Only integer
arithmetic and exact float64 steps lie between the bits and a number; nothing is taken from a
library's own stream of normals, which may change between versions.

The hash is SplitMix64's output function (Steele, Lea, Flood: "Fast splittable pseudorandom number
generators", OOPSLA 2014; constants of its reference implementation by S. Vigna).

Dropout masks are drawn at every step on both sides, in the graph: a shorter hash of 32 bits, all in
int64, which every framework has on every device (C. Wellons' lowbias32, found by search for the least
bias, github.com/skeeto/hash-prospector). {torch,keras}_impl/dropout.py are the same in tensors.
"""

import hashlib
import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from parity.core import precision
from parity.core.arrays import Floats

Bits = NDArray[np.uint64]
Words = TypeVar("Words", int, NDArray[np.int64])

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
BLOCK = 1 << 16  # elements drawn at a time
WORD = 2**32 - 1
# As signed numbers of 32 bits: a word times one of them stays within int64.
GOLDEN32 = 0x9E3779B9 - 2**32
MIX32 = (0x7FEB352D, 0x846CA68B - 2**32)


def bits(seed: int, name: str, size: int, start: int = 0) -> Bits:
    """`size` words of 64 random bits, from the `start`-th on."""
    counter = np.arange(start + 1, start + size + 1, dtype=np.uint64)
    return _mix(_key(seed, name) + counter * GOLDEN)


def uniform(seed: int, name: str, shape: tuple[int, ...], bound: float) -> Floats:
    """Uniform on (-bound, bound), from the upper 24 bits of each word."""
    steps = (bits(seed, name, math.prod(shape)) >> np.uint64(40)).astype(np.float64)
    return (((steps + 0.5) * 2.0**-23 - 1.0) * bound).reshape(shape)


def normal(seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    """Mean 0 and variance 1: twelve 16-bit uniforms summed (Irwin-Hall), exact in float32.

    The sum is an integer, so that the result is the same to the last bit on every machine, which a
    logarithm or a cosine of a mathematical library would not be. It stays within +-6.
    """
    size = math.prod(shape)
    centred: Floats = np.empty(size)
    for start in range(0, size, BLOCK):
        part = centred[start : start + BLOCK]
        words = bits(seed, name, 3 * part.size, 3 * start).view(np.uint16).reshape(part.size, 12)
        part[:] = (words.sum(axis=1, dtype=np.int64) + 6 - 6 * 2**16) * 2.0**-16
    return centred.reshape(shape)


def permutation(seed: int, name: str, size: int) -> NDArray[np.int64]:
    """A random order of 0..size-1."""
    return np.argsort(bits(seed, name, size), kind="stable").astype(np.int64)


def keep(
    seed: int, name: str, replica: int, step: int, call: int, shape: tuple[int, ...], rate: float
) -> NDArray[np.bool_]:
    """Which elements the dropout of one module keeps: each with the probability 1 - rate.

    `call`: the number of the module's call in this step. Elements are counted row by row, in PyTorch's shape.
    """
    first, second = (mix32(mix32(word + step) + call) for word in mask_key(seed, name, replica))
    numbers = np.arange(math.prod(shape), dtype=np.int64)
    kept: NDArray[np.bool_] = mix32((numbers * GOLDEN32 + first) ^ second) >= round(rate * 2**32)
    return kept.reshape(shape)


def mask_name(size: int) -> str:
    """What stands for a module where masks are told apart by their order, among tensors of so many elements."""
    return f"of {size}"


def mask_key(seed: int, name: str, replica: int) -> tuple[int, int]:
    """What the masks of a module in a replica are drawn from, besides step and call: two words of 32 bits."""
    key = int(_key(seed, f"dropout/{replica}/{name}"))
    return key & WORD, key >> 32


def mix32(x: Words) -> Words:
    """The lower 32 bits of x, hashed."""
    x = x & WORD
    x = ((x ^ (x >> 16)) * MIX32[0]) & WORD
    x = ((x ^ (x >> 15)) * MIX32[1]) & WORD
    return x ^ (x >> 16)


def one_ulp_away(values: Floats, seed: int, name: str) -> Floats:
    """Each value moved to one of its two neighbours in float64; zeros stay."""
    flat, moved = values.reshape(-1), np.empty(values.size)
    for start in range(0, values.size, BLOCK):  # of a large model there is to be no other copy than this one
        part = flat[start : start + BLOCK]
        up = (bits(seed, name, part.size, start) >> np.uint64(63)).astype(bool)
        neighbour = np.nextafter(part, np.where(up, np.inf, -np.inf))
        moved[start : start + BLOCK] = np.where(part == 0.0, part, neighbour)
    return moved.reshape(values.shape)


def representable(values: Floats, at: str) -> Floats:
    """`values` rounded to what the precision named `at` can hold; still float64."""
    return values.astype(precision.dtype(at)).astype(np.float64)


def _key(seed: int, name: str) -> np.uint64:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _mix(state: Bits) -> Bits:
    state = (state ^ (state >> np.uint64(30))) * MIX[0]
    state = (state ^ (state >> np.uint64(27))) * MIX[1]
    return state ^ (state >> np.uint64(31))
