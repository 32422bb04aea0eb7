"""Counter-based random numbers for weights, data, sample order and dropout masks.

Element i of the stream (seed, name) is a hash of a key and of i alone. Two processes therefore draw
the same numbers without exchanging any, in whatever order and on whatever machine they draw them.
Numbers are made from the bits by integer arithmetic and exact float64 operations only; a library's
normal generator is not used because its results may change between versions.

The hash is SplitMix64's output function (Steele, Lea, Flood: "Fast splittable pseudorandom number
generators", OOPSLA 2014; constants of its reference implementation by S. Vigna).

Dropout masks are drawn inside each framework's graph at every step. They use a shorter hash of 32 bits
(C. Wellons' lowbias32, found by search for the least bias, github.com/skeeto/hash-prospector), computed
in int64 because every framework has that type on every device. {torch,keras}_impl/dropout.py implement
the same hash with tensors.
"""

import hashlib
import math
from collections.abc import Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parity.core import precision
from parity.core.arrays import Floats

Bits = NDArray[np.uint64]
Words = TypeVar("Words", int, NDArray[np.int64])
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
BLOCK = 1 << 16  # elements drawn at a time, so that temporary arrays stay small
WORD = 2**32 - 1  # the mask of the lower 32 bits
# The hash's constants as signed 32-bit numbers, so that their product with a 32-bit word fits into int64.
GOLDEN32 = 0x9E3779B9 - 2**32
MIX32 = (0x7FEB352D, 0x846CA68B - 2**32)
UNIFORM, NORMAL = "of", "normal of"  # kinds of random numbers that models draw; a mask is made of uniform ones


def bits(seed: int, name: str, size: int, start: int = 0) -> Bits:
    """Return `size` words of 64 random bits, beginning with element `start` of the stream."""
    state = _key(seed, name) + np.arange(start + 1, start + size + 1, dtype=np.uint64) * GOLDEN
    state = (state ^ (state >> np.uint64(30))) * MIX[0]
    state = (state ^ (state >> np.uint64(27))) * MIX[1]
    return state ^ (state >> np.uint64(31))


def integers(seed: int, name: str, shape: tuple[int, ...], first: int, stop: int) -> NDArray[np.int64]:
    """Draw whole numbers from `first` up to but not including `stop`."""
    drawn = (bits(seed, name, math.prod(shape)) >> np.uint64(11)) % np.uint64(stop - first)
    return (drawn.astype(np.int64) + first).reshape(shape)


def uniform(seed: int, name: str, shape: tuple[int, ...], bound: float) -> Floats:
    """Draw uniformly from (-bound, bound), in 2^24 equal steps."""
    steps = (bits(seed, name, math.prod(shape)) >> np.uint64(40)).astype(np.float64)
    return (((steps + 0.5) * 2.0**-23 - 1.0) * bound).reshape(shape)


def normal(seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    """Draw approximately standard normal numbers: the sum of twelve 16-bit uniforms (Irwin-Hall), within +-6.

    The sum is an integer before it is scaled, so that the result is exact in float32 and bitwise equal on every
    machine. (Box-Muller's logarithm and cosine differ between mathematical libraries.)
    """
    size = math.prod(shape)
    centred: Floats = np.empty(size)
    for start in range(0, size, BLOCK):
        part = centred[start : start + BLOCK]
        words = bits(seed, name, 3 * part.size, 3 * start).view(np.uint16).reshape(part.size, 12)
        part[:] = (words.sum(axis=1, dtype=np.int64) + 6 - 6 * 2**16) * 2.0**-16
    return centred.reshape(shape)


def gamma(shape: Any, normal_: Any, uniform_: Any) -> Any:
    """Return approximately what a gamma distribution draws, in arrays or tensors, from a normal and a uniform number.

    The formula of Wilson and Hilferty (1931) for a shape of one more, times the power by which the shape is lowered.
    """
    more = shape + 1
    return more * abs(1 - 1 / (9 * more) + normal_ / (3 * more**0.5)) ** 3 * uniform_ ** (1 / shape)


def permutation(seed: int, name: str, size: int) -> NDArray[np.int64]:
    """Return a random permutation of 0..size-1."""
    return np.argsort(bits(seed, name, size), kind="stable").astype(np.int64)


def keep(
    seed: int, name: str, replica: int, step: int, call: int, shape: tuple[int, ...], rate: float
) -> NDArray[np.bool_]:
    """Return the mask of the elements that a module's dropout keeps, each with probability 1 - rate.

    `call` counts the module's calls within the step, so that a module that is called twice draws two masks.
    `shape` is that of the PyTorch tensor, because elements are numbered row by row in it.
    """
    first, second = (mix32(mix32(word + step) + call) for word in mask_key(seed, name, replica))
    numbers = np.arange(math.prod(shape), dtype=np.int64)
    kept: NDArray[np.bool_] = mix32((numbers * GOLDEN32 + first) ^ second) >= round(rate * 2**32)
    return kept.reshape(shape)


def mask_name(size: int, kind: str = UNIFORM) -> str:
    """Return the name under which masks of `size` elements are drawn where no module's name is known.

    Such masks differ only by the order in which they are drawn; other random numbers of a kind as well.
    """
    return f"{kind} {size}"


def mask_key(seed: int, name: str, replica: int) -> tuple[int, int]:
    """Return the key of a module's dropout masks in one replica: two words of 32 bits."""
    key = int(_key(seed, f"dropout/{replica}/{name}"))
    return key & WORD, key >> 32


class Repeats:
    """The masks of a user's program that repeat an earlier one, because a seed gives them the same random numbers.

    `places`: the modules that draw them. `states`: those of the program's own generator from which masks were drawn.
    `are_held`: whether new masks are drawn all the same.
    """

    def __init__(self) -> None:
        self.places: list[str] = []
        self.are_held = False
        self._first: dict[Hashable, tuple[int, int]] = {}

    @property
    def states(self) -> set[Hashable]:
        return set(self._first)

    def first(self, state: Hashable, draw: tuple[int, int], place: str) -> tuple[int, int]:
        """Return the step and the call of the draw whose mask this one has.

        That is the first from the same state of the program's own generator; None stands for a state that never recurs.
        """
        earlier = draw if state is None else self._first.setdefault(state, draw)
        if earlier != draw and place not in self.places:
            self.places.append(place)
        return draw if self.are_held else earlier


def mix32(x: Words) -> Words:
    """Hash the lower 32 bits of x."""
    x = x & WORD
    x = ((x ^ (x >> 16)) * MIX32[0]) & WORD
    x = ((x ^ (x >> 15)) * MIX32[1]) & WORD
    return x ^ (x >> 16)


def one_ulp_away(values: Floats, seed: int, name: str) -> Floats:
    """Return the values, each moved to a random one of its two float64 neighbours; zeros, infinities and NaN stay."""
    flat, moved = values.reshape(-1), np.empty(values.size)
    for start in range(0, values.size, BLOCK):  # in blocks: a large model's weights are copied only once
        part = flat[start : start + BLOCK].astype(np.float64, copy=False)
        words = bits(seed, name, -(-part.size // 64), start // 64)
        # The bits of a float64, read as a whole number, are one more or one less than those of its neighbours.
        away = np.unpackbits(words.view(np.uint8), count=part.size).astype(np.int64)
        away = (2 * away - 1) * ((part != 0.0) & np.isfinite(part))
        moved[start : start + BLOCK] = (part.view(np.int64) + away).view(np.float64)
    return moved.reshape(values.shape)


def spread(seed: int, name: str, values: Floats) -> Floats:
    """Return the values, or if all of them are equal others around them, by which they can be told apart."""
    if not (values.size and np.isfinite(values.flat[0]) and (values == values.flat[0]).all()):
        return values
    first, noise = float(values.flat[0]), normal(seed, name, values.shape)
    return first + (abs(first) / 8 * noise if first else noise / 64)


def representable(values: Floats, at: str) -> Floats:
    """Return the values rounded to the precision named `at`, as float64."""
    return values.astype(precision.dtype(at)).astype(np.float64)


def _key(seed: int, name: str) -> np.uint64:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
