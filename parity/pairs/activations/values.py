"""Measure how far apart two tensors are that may hold the same numbers in another order of axes, and find that order.

A tensor's `Order` tells how Keras's tensor becomes torch's: it is transposed by it, then reshaped to torch's shape.
Most tensors that are not the same are told apart by their `Invariants`, which no order of axes changes. For the rest,
a sample of elements finds the order, and only then are all elements compared.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import combinations, islice, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.core.arrays import Array
from parity.core.groups import grouped
from parity.pairs.weights.patterns import Shape, portions
from parity.trace.summary import Summary

Order = tuple[int, ...]

# Relative L2 distance up to which tensors count as the same. Between two right ports in float64, rounding leaves 1e-12,
# and constants that a framework rounds to float32 leave up to 1e-7. A fault that is smaller than SAME does not keep a
# tensor from being matched with its counterpart.
SAME = 1e-6
# Unrelated tensors are about 1.4 apart, and 1.2 behind a ReLU; an epsilon or a form of GELU moves a tensor by 1e-2.
CLOSE = 0.25
# The nearer of two candidates, or of two orders, wins if its distance is less than this fraction of the other's.
CLEARLY = 0.5
MOSTLY = 0.5  # of the elements
# How many elements are compared to find the order of axes: half of them large ones (for sparse tensors), half random.
SAMPLE = 256
INVARIANTS = 5
TINY = 1e-140  # the square of this is still a normal float64
# At most so many orders of axes are tried: all of seven axes.
MOST_ORDERS = 5040


class Invariants(NamedTuple):
    """What no order of axes changes."""

    finite: int
    total: float
    norm: float
    smallest: float
    largest: float


class Fit(NamedTuple):
    """The best order of axes, and how far apart the tensors are then."""

    order: Order
    distance: float


class Tensor:
    """An array with properties that are computed when they are first asked for."""

    def __init__(self, array: Array) -> None:
        self.array = np.ascontiguousarray(array).reshape(array.shape)
        self.shape: Shape = array.shape
        self.size = array.size
        # Floats, integers and booleans are never each other's counterpart: the verdict would be `diverged` anyway.
        self.family = {"f": "float", "V": "float", "b": "boolean"}.get(array.dtype.kind, "integer")

    @cached_property
    def flat(self) -> NDArray[np.float64]:
        """Return all elements in row-major order, as float64."""
        return self.array.reshape(-1).astype(np.float64, copy=False)

    @cached_property
    def invariants(self) -> Invariants:
        """Return the invariants, over the finite elements."""
        values = self.flat[np.isfinite(self.flat)]
        if not values.size:
            return Invariants(0, 0.0, 0.0, 0.0, 0.0)
        with np.errstate(over="ignore"):
            return Invariants(values.size, *map(float, (values.sum(), _norm(values), values.min(), values.max())))

    @property
    def is_constant(self) -> bool:
        """Return whether the tensor is no evidence: one number everywhere, nothing finite, or no elements."""
        invariants = self.invariants
        return not invariants.finite or (invariants.finite == self.size and invariants.smallest == invariants.largest)

    @cached_property
    def sample(self) -> NDArray[np.int64]:
        """Return the positions of the largest elements of equal parts and of random ones; all of a small tensor."""
        if self.size <= SAMPLE:
            return np.arange(self.size)
        parts = self.flat[: self.size // (SAMPLE // 2) * (SAMPLE // 2)].reshape(SAMPLE // 2, -1)
        largest = np.abs(parts).argmax(axis=1) + np.arange(len(parts)) * parts.shape[1]
        return np.concatenate([largest, np.random.default_rng(0).integers(0, self.size, SAMPLE // 2)])

    @cached_property
    def sampled(self) -> NDArray[np.float64]:
        """Return the elements of the sample."""
        return self.flat[self.sample]

    @cached_property
    def digest(self) -> bytes:
        """Return a hash of the values."""
        return hashlib.blake2b(self.array.reshape(-1).view(np.uint8).data, digest_size=16).digest()


class Excerpt(Tensor):
    """A tensor of torch's of which a certificate holds the invariants and the sample alone."""

    def __init__(self, numbers: Summary) -> None:
        self.array, self.shape, self.size, self.family = numbers, numbers.whole, math.prod(numbers.whole), "float"
        finite, *rest = numbers[:INVARIANTS].tolist()
        self.invariants = Invariants(int(finite), *rest)
        self.sample, self.sampled = np.split(np.asarray(numbers[INVARIANTS:]), 2)
        self.sample = self.sample.astype(np.int64)


def tensor(array: Array) -> Tensor:
    """Return a tensor of torch's, which may be an excerpt."""
    return Excerpt(array) if isinstance(array, Summary) else Tensor(array)


def excerpt(array: Array) -> Array:
    """Return the numbers of a tensor's excerpt."""
    whole = Tensor(array)
    return np.concatenate([whole.invariants, whole.sample, whole.sampled])


def could_be_same(first: Tensor, second: Tensor) -> bool:
    """Return whether the invariants allow two tensors to be the same in some order of axes."""
    a, b = first.invariants, second.invariants
    if (first.size, first.family, a.finite) != (second.size, second.family, b.finite):
        return False
    tolerance = 2 * SAME * max(a.norm, b.norm)
    extremes = max(abs(a.smallest - b.smallest), abs(a.largest - b.largest), abs(a.norm - b.norm))
    return extremes <= tolerance and abs(a.total - b.total) <= tolerance * math.sqrt(first.size)


def distance(first: Array, second: Array) -> float:
    """Return the relative L2 distance of two flat float64 arrays, infinite if other elements are not finite."""
    with np.errstate(all="ignore"):
        apart, scale = _norm(first - second), max(_norm(first), _norm(second))
    if TINY < scale < math.inf and math.isfinite(apart):
        return apart / scale
    finite = np.isfinite(first) & np.isfinite(second)
    if not finite.all():
        if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
            return math.inf
        first, second = first[finite], second[finite]
    largest = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0))
    if not largest:
        return 0.0
    first, second = first / largest, second / largest  # their squares neither overflow nor vanish
    return _norm(first - second) / max(_norm(first), _norm(second))


def fit(torch: Tensor, keras: Tensor, known: Order | None = None, preferred: Sequence[Order] = ()) -> Fit | None:
    """Return the order of Keras's axes in which its tensor is torch's, or None if no order of axes fits.

    Values tell the order where some order makes the tensors the same. Where none does, a fault has changed the
    values, and the order is `known` (the layers tell it, as by Keras's `data_format`), or else the first of those that
    are `preferred`, the likeliest first: the nearest order counts only if its tensors are close, and much closer than
    that, or if in this order alone most elements are the same. Of equally near orders, preferred ones count first.
    """
    if (torch.size, torch.family) != (keras.size, keras.family):
        return None
    possible = orders(keras.shape, torch.shape)
    likely = [*([known] if known else []), *preferred, *possible]
    tried = [order for order in dict.fromkeys(likely) if order in possible]
    if not tried:
        return None
    sampled = [distance(torch.sampled, _sampled(torch, keras, order)) for order in tried]
    near = (order for order, sampled_distance in zip(tried, sampled, strict=True) if sampled_distance <= SAME)
    fits = (Fit(order, full_distance(torch, keras, order)) for order in near)
    if same := next((candidate for candidate in fits if candidate.distance <= SAME), None):
        return same
    expected = Fit(tried[0], full_distance(torch, keras, tried[0]))
    if known == tried[0]:
        return expected
    nearest_order = tried[int(np.argmin(sampled))]
    nearest = Fit(nearest_order, full_distance(torch, keras, nearest_order))
    is_close = nearest.distance <= min(CLOSE, CLEARLY * expected.distance)
    is_mostly = _equal(torch, keras, nearest_order) >= MOSTLY > _equal(torch, keras, expected.order)
    return nearest if is_close or is_mostly else expected


def _equal(torch: Tensor, keras: Tensor, order: Order) -> float:
    """Return the share of the sampled elements that are the same in an order of axes, and not zero."""
    mine, theirs = torch.sampled, _sampled(torch, keras, order)
    return float(np.mean((np.abs(mine - theirs) <= SAME * np.abs(mine)) & (mine != 0)))


def sampled_distances(torch: Tensor, others: Sequence[Tensor]) -> list[float]:
    """Return how far apart torch's tensor and each of Keras's are by the sample alone: cheap even for hundreds."""
    apart = [math.inf] * len(others)
    alike = [number for number, keras in enumerate(others) if keras.family == torch.family]
    shapes = grouped(alike, lambda number: others[number].shape)
    for shape, numbers in shapes.items():
        for order in orders(shape, torch.shape):
            positions = _positions(torch, shape, order)
            rows = np.stack([others[number].flat[positions] for number in numbers])
            with np.errstate(all="ignore"):
                sizes = np.maximum(np.linalg.norm(rows, axis=1), _norm(torch.sampled))
                distances = np.linalg.norm(rows - torch.sampled, axis=1) / sizes
            for number, distance in zip(numbers, distances.tolist(), strict=True):
                apart[number] = min(apart[number], math.inf if math.isnan(distance) else distance)
    return apart


def full_distance(torch: Tensor, keras: Tensor, order: Order) -> float:
    """Return how far apart all elements are, or those of an excerpt, with Keras's axes in this order."""
    if isinstance(torch, Excerpt):
        return distance(torch.sampled, _sampled(torch, keras, order))
    return distance(torch.flat, keras.flat.reshape(keras.shape).transpose(order).reshape(-1))


def _sampled(torch: Tensor, keras: Tensor, order: Order) -> Array:
    """Return Keras's elements at torch's sample, without moving the others."""
    return keras.flat[_positions(torch, keras.shape, order)]


def _positions(torch: Tensor, keras: Shape, order: Order) -> NDArray[np.int64]:
    """Return where the elements of torch's sample are in Keras's flat tensor."""
    positions = np.zeros(len(torch.sample), np.int64)
    remaining = torch.sample
    for axis in reversed(order):
        if not keras[axis]:
            return remaining  # an empty tensor has an empty sample
        remaining, index = np.divmod(remaining, keras[axis])
        positions += index * math.prod(keras[axis + 1 :])
    return positions


@lru_cache(maxsize=4096)
def orders(keras: Shape, torch: Shape) -> dict[Order, None]:
    """Return the orders of Keras's axes from which torch's shape follows by merging or splitting neighbours.

    Likely ones come first: those that give torch's very shape, then those that swap the fewest axes. Axes of length 1
    are not moved.
    """
    if math.prod(keras) != math.prod(torch):
        return {}

    def unlikely(order: Order) -> tuple[bool, int, Order]:
        is_other_shape = tuple(keras[axis] for axis in order) != torch
        return is_other_shape, sum(later < earlier for earlier, later in combinations(order, 2)), order

    long = [axis for axis, extent in enumerate(keras) if extent != 1]
    possible = [
        order
        for moved in islice(permutations(long), MOST_ORDERS)
        if _merges([keras[axis] for axis in moved], [extent for extent in torch if extent != 1])
        for order in [_filled(moved, keras, torch)]
    ]
    return dict.fromkeys(sorted(possible, key=unlikely))


def _merges(first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether axes of one shape split or merge into the other's, whose number of elements is the same."""
    if 0 in first or 0 in second:
        return sorted(first) == sorted(second) or len(first) != len(second)
    return all(min(len(first[ours]), len(second[theirs])) == 1 for ours, theirs in portions(first, second))


def _filled(moved: Sequence[int], keras: Shape, torch: Shape) -> Order:
    """Return the order of all axes; those of length 1 go where torch has its own, or else stay where they were."""
    like = torch if len(torch) == len(keras) and torch.count(1) == keras.count(1) else keras
    ones = (axis for axis, extent in enumerate(keras) if extent == 1)
    others = iter(moved)
    return tuple(next(ones) if extent == 1 else next(others) for extent in like)


def _norm(values: Array) -> float:
    return math.sqrt(float(np.dot(values, values)))
