"""How far apart two tensors are that may hold the same numbers in another order of axes, and which order that is.

A tensor's `Order` tells how Keras's tensor becomes torch's: transposed by it, then reshaped to torch's shape.
Most tensors that are not the same are told apart by their `Marks`, which no order of axes changes; of the rest,
a sample of elements finds the order, and only then are all elements compared.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice, pairwise, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.core.arrays import Array

Order = tuple[int, ...]
Shape = tuple[int, ...]

# Relative L2. Between two ports in float64 rounding leaves 1e-12, and constants that a framework rounds to float32
# up to 1e-7; what a fault moves by less is still the same tensor to whoever looks for its counterpart.
SAME = 1e-6
# Unrelated tensors are about 1.4 apart, and 1.2 behind a ReLU; an epsilon or a form of GELU moves a tensor by 1e-2.
CLOSE = 0.25
# Elements by which orders of axes are tried: as many large ones, for sparse tensors, as random ones.
SAMPLE = 256
TINY = 1e-140  # its square is a float64 with all digits
# Orders of axes that are tried: all of seven axes.
MOST_ORDERS = 5040


class Marks(NamedTuple):
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
    """An array with what is known of it, found when it is first asked for."""

    def __init__(self, array: Array) -> None:
        self.array = np.ascontiguousarray(array).reshape(array.shape)
        self.shape: Shape = array.shape
        self.size = array.size
        # Floats, integers and booleans are never each other's counterpart: the judge would refuse them.
        self.family = {"f": "float", "V": "float", "b": "boolean"}.get(array.dtype.kind, "integer")

    @cached_property
    def flat(self) -> NDArray[np.float64]:
        """All elements, as torch and numpy count them."""
        return self.array.reshape(-1).astype(np.float64, copy=False)

    @cached_property
    def marks(self) -> Marks:
        """Of the finite elements."""
        values = self.flat[np.isfinite(self.flat)]
        if not values.size:
            return Marks(0, 0.0, 0.0, 0.0, 0.0)
        with np.errstate(over="ignore"):
            return Marks(values.size, *map(float, (values.sum(), _norm(values), values.min(), values.max())))

    @property
    def is_constant(self) -> bool:
        """It says nothing: one number everywhere, nothing finite, or nothing at all."""
        marks = self.marks
        return not marks.finite or (marks.finite == self.size and marks.smallest == marks.largest)

    @cached_property
    def sample(self) -> NDArray[np.int64]:
        """The places of the largest elements of equal parts, and random ones."""
        if self.size <= SAMPLE:
            return np.arange(self.size)
        parts = self.flat[: self.size // (SAMPLE // 2) * (SAMPLE // 2)].reshape(SAMPLE // 2, -1)
        largest = np.abs(parts).argmax(axis=1) + np.arange(len(parts)) * parts.shape[1]
        return np.concatenate([largest, np.random.default_rng(0).integers(0, self.size, SAMPLE // 2)])

    @cached_property
    def digest(self) -> bytes:
        """Tensors of equal digest are equal."""
        return hashlib.blake2b(self.array.reshape(-1).view(np.uint8).data, digest_size=16).digest()


def could_be_same(one: Tensor, other: Tensor) -> bool:
    """Whether their marks allow them to be the same in some order of axes."""
    a, b = one.marks, other.marks
    if (one.size, one.family, a.finite) != (other.size, other.family, b.finite):
        return False
    room = 2 * SAME * max(a.norm, b.norm)
    extremes = max(abs(a.smallest - b.smallest), abs(a.largest - b.largest), abs(a.norm - b.norm))
    return extremes <= room and abs(a.total - b.total) <= room * math.sqrt(one.size)


def distance(one: Array, other: Array) -> float:
    """Relative L2 of two flat float64 arrays; infinite where not the same elements are NaN or infinite."""
    with np.errstate(all="ignore"):
        apart, scale = _norm(one - other), max(_norm(one), _norm(other))
    if TINY < scale < math.inf and math.isfinite(apart):
        return apart / scale
    finite = np.isfinite(one) & np.isfinite(other)
    if not finite.all():
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return math.inf
        one, other = one[finite], other[finite]
    largest = max(np.abs(one).max(initial=0.0), np.abs(other).max(initial=0.0))
    if not largest:
        return 0.0
    one, other = one / largest, other / largest  # their squares neither overflow nor vanish
    return _norm(one - other) / max(_norm(one), _norm(other))


def fit(torch: Tensor, keras: Tensor, preferred: Sequence[Order] = ()) -> Fit | None:
    """The order in which Keras's tensor is nearest to torch's, the first of several. None: no order of axes fits."""
    if (torch.size, torch.family) != (keras.size, keras.family):
        return None
    known = orders(keras.shape, torch.shape)
    tried = [order for order in dict.fromkeys((*preferred, *known)) if order in known]
    if not tried:
        return None
    sampled = [distance(torch.flat[torch.sample], _sampled(torch, keras, order)) for order in tried]
    nearest = [order for order, apart in zip(tried, sampled, strict=True) if apart <= SAME]
    found = (Fit(order, whole(torch, keras, order)) for order in nearest or [tried[int(np.argmin(sampled))]])
    best = next(found)
    for another in found:
        if best.distance <= SAME:
            break
        best = min(best, another, key=lambda candidate: candidate.distance)
    return best


def glance(torch: Tensor, others: Sequence[Tensor]) -> list[float]:
    """How far apart torch's tensor and each of Keras's seem, by the sample alone. It is cheap, also for hundreds."""
    apart = [math.inf] * len(others)
    shapes: dict[Shape, list[int]] = {}
    for number, keras in enumerate(others):
        if keras.family == torch.family:
            shapes.setdefault(keras.shape, []).append(number)
    ours = torch.flat[torch.sample]
    for shape, numbers in shapes.items():
        for order in orders(shape, torch.shape):
            places = _places(torch, shape, order)
            seen = _rows_apart(ours, np.stack([others[number].flat[places] for number in numbers]))
            for number, distance in zip(numbers, seen.tolist(), strict=True):
                apart[number] = min(apart[number], distance)
    return apart


def _rows_apart(one: Array, rows: Array) -> NDArray[np.float64]:
    """The distances of some rows, where they are infinite if anything in a row or in `one` is not finite."""
    with np.errstate(all="ignore"):
        apart = np.linalg.norm(rows - one, axis=1) / np.maximum(np.linalg.norm(rows, axis=1), _norm(one))
    return np.where(np.isnan(apart), np.inf, apart)


def whole(torch: Tensor, keras: Tensor, order: Order) -> float:
    """How far apart all elements are, in this order of Keras's axes."""
    return distance(torch.flat, keras.flat.reshape(keras.shape).transpose(order).reshape(-1))


def _sampled(torch: Tensor, keras: Tensor, order: Order) -> Array:
    """Keras's elements at torch's sample, without moving the others."""
    return keras.flat[_places(torch, keras.shape, order)]


def _places(torch: Tensor, keras: Shape, order: Order) -> NDArray[np.int64]:
    """Where the elements of torch's sample are in Keras's tensor."""
    places = np.zeros(len(torch.sample), np.int64)
    rest = torch.sample
    for axis in reversed(order):
        if not keras[axis]:
            return rest  # there are none
        rest, index = np.divmod(rest, keras[axis])
        places += index * math.prod(keras[axis + 1 :])
    return places


@lru_cache(maxsize=4096)
def orders(keras: Shape, torch: Shape) -> dict[Order, None]:
    """The orders of Keras's axes from which torch's shape comes by merging or splitting neighbours, likely ones first.

    Likely: torch's very shape, then as few axes as possible that swapped places. Axes of length 1 stay out of it.
    """
    if math.prod(keras) != math.prod(torch):
        return {}
    long = [axis for axis, extent in enumerate(keras) if extent != 1]
    possible = [
        order
        for moved in islice(permutations(long), MOST_ORDERS)
        if _merges([keras[axis] for axis in moved], [extent for extent in torch if extent != 1])
        for order in [_filled(moved, keras, torch)]
    ]
    return dict.fromkeys(sorted(possible, key=lambda order: (_shape(keras, order) != torch, _swaps(order), order)))


def _merges(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether axes of the one are split or merged into the other's: within what is cut alike, one has a single axis."""
    if 0 in one or 0 in other:
        return sorted(one) == sorted(other) or len(one) != len(other)
    cuts = [list(_cuts(shape)) for shape in (one, other)]
    common = [0, *sorted(set(cuts[0]) & set(cuts[1]))]
    return all(min(sum(start < cut <= end for cut in of) for of in cuts) == 1 for start, end in pairwise(common))


def _cuts(shape: Sequence[int]) -> Iterator[int]:
    """How many elements the first axes span."""
    for count in range(1, len(shape) + 1):
        yield math.prod(shape[:count])


def _filled(moved: Sequence[int], keras: Shape, torch: Shape) -> Order:
    """The order of all axes: those of length 1 where torch has its own, or else where they were."""
    like = torch if len(torch) == len(keras) and torch.count(1) == keras.count(1) else keras
    ones = (axis for axis, extent in enumerate(keras) if extent == 1)
    others = iter(moved)
    return tuple(next(ones) if extent == 1 else next(others) for extent in like)


def _shape(keras: Shape, order: Order) -> Shape:
    return tuple(keras[axis] for axis in order)


def _swaps(order: Order) -> int:
    return sum(order[j] < order[i] for i in range(len(order)) for j in range(i + 1, len(order)))


def _norm(values: Array) -> float:
    return math.sqrt(float(np.dot(values, values)))
