"""The ops that a module calls, in order: how they are recorded, written to a folder, and read; and their tensors.

Each tensor has a number, by which ops refer to it. A number that no op returns is that of an input, a weight or a
literal. Two tensors are counterparts if their sorted numbers agree to rounding in float64, or to what float32 can see,
whatever the order of their axes and their shape. One of them may repeat each number equally often, as an expanded
tensor does; of two masks one may be the other's opposite. Means and extremes are compared first, so that few tensors
have to be sorted.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from parity.core.arrays import Array, Floats
from parity.core.errors import TraceError
from parity.runtime.returned import KINDS
from parity.trace import validate
from parity.trace.tensorfile import TensorFile, Writer

RELATIVE: Final = 2.0**-40  # of a number's own magnitude
CANCELLED: Final = 2.0**-2  # as much of the typical magnitude in its tensor: what a sum that cancels leaves
HUGE: Final = 1e8  # as large is what masks add, beside which other numbers are none
FEW: Final = 2  # a tensor with no more different numbers than this may agree with another by chance
LONGEST_SHAPE: Final = 8  # numbers; the shape of a tensor is itself a tensor in TensorFlow
FILE: Final = "ops"  # in a folder, with the suffixes .json and .safetensors
LARGEST: Final = 256 * 2**20  # bytes of recorded tensors; later ones are not kept
LARGEST_GIVEN: Final = 16 * 2**20  # bytes of an input, weight or literal that is kept
LARGEST_LIST: Final = 64 * 2**20  # bytes of the list of ops in a file


class Value:
    """A recorded tensor and what tells quickly that another one differs from it."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.is_mask = array.dtype == np.bool_
        self.size = array.size
        self.is_integer = array.dtype.kind in "iu"
        self.is_shape = self.is_integer and array.ndim <= 1 and array.size <= LONGEST_SHAPE

    @cached_property
    def sorted(self) -> Floats:
        """Return all numbers in ascending order."""
        return np.sort(self.array.astype(np.float64, copy=False), axis=None)

    @cached_property
    def is_plain(self) -> bool:
        """Return whether there are too few different numbers for an agreement to mean anything."""
        return int(np.count_nonzero(self.sorted[1:] != self.sorted[:-1])) < FEW

    @cached_property
    def is_rounded(self) -> bool:
        """Return whether float32 holds all numbers exactly, and they are more than a few, and not all whole."""
        if self.array.dtype.kind != "f" or self.is_plain:
            return False
        with np.errstate(over="ignore"):
            is_exact = np.array_equal(self.array, self.array.astype(np.float32), equal_nan=True)
            return is_exact and bool(np.any(self.array % 1))

    @cached_property
    def typical(self) -> float:
        """Return the median magnitude of the finite numbers that are not zero, without a mask's huge ones."""
        sizes = np.abs(self.array)
        sizes = sizes[(sizes > 0) & (sizes < HUGE)]
        return float(np.median(sizes)) if sizes.size else 0.0

    @cached_property
    def signs(self) -> Floats:
        """Return the mean magnitude, the mean, the least and the largest number."""
        finite = self.array[np.isfinite(self.array)]
        if not finite.size:
            return np.zeros(4)
        return np.array([np.abs(finite).mean(), finite.mean(), finite.min(), finite.max()], np.float64)


def equal(one: Value, other: Value, grain: float = RELATIVE) -> bool:
    """Return whether two tensors hold the same numbers, to `grain` of a number's own magnitude."""
    if not one.size or not other.size or max(one.size, other.size) % min(one.size, other.size):
        return one.size == other.size
    if one.is_integer and other.is_integer and (is_same := _are_same_integers(one.array, other.array)) is not None:
        return is_same
    return _alike(one, other, grain) or opposite(one, other)


def _are_same_integers(one: Array, other: Array) -> bool | None:
    """Return whether integers stand in the same places, as an order and its inverse do not.

    One may be repeated along further axes of the other. None if their axes may stand in another order.
    """
    few, many = sorted((one, other), key=np.size)
    if many.shape[: few.ndim] == few.shape:
        return bool(np.all(few.reshape((*few.shape, *[1] * (many.ndim - few.ndim))) == many))
    return bool(np.all(few == many)) if few.ndim and many.shape[-few.ndim :] == few.shape else None


def opposite(one: Value, other: Value) -> bool:
    """Return whether one mask may be the other's opposite: as many are true here as are false there."""
    if not (one.is_mask and other.is_mask) or _alike(one, other, RELATIVE):
        return False
    return bool(np.isclose(one.array.mean(), 1.0 - other.array.mean(), rtol=0.0, atol=RELATIVE))


def apart(one: Value, other: Value) -> float | None:
    """Return how far the sorted numbers are apart at most, relative to the largest; None for other sizes."""
    if one.size != other.size or not one.size:
        return None
    largest = max(np.abs(one.signs[2:]).max(), np.abs(other.signs[2:]).max())
    with np.errstate(invalid="ignore"):
        distances = np.abs(one.sorted - other.sorted)
    distances = distances[np.isfinite(distances)]
    return float(distances.max() / largest) if distances.size and largest else None


class Table:
    """Many tensors, of which those that may equal another one are found at once."""

    def __init__(self, numbered: Mapping[int, Value]) -> None:
        self._values = list(numbered.items())
        self._signs = np.array([value.signs for _, value in self._values]).reshape(-1, 4)
        self._typical = np.array([value.typical for _, value in self._values])
        self._sizes = np.array([value.size for _, value in self._values])
        self._masks = np.array([value.is_mask for _, value in self._values], np.bool_)

    def equals(self, value: Value, grain: float = RELATIVE) -> list[int]:
        """Return the numbers of the tensors that hold the same numbers as this one, to `grain` of their magnitude."""
        likely = _near_signs(self._signs, value.signs, np.maximum(self._typical, value.typical), grain)
        sizes = np.maximum(self._sizes, 1)
        likely &= (sizes % max(value.size, 1) == 0) | (max(value.size, 1) % sizes == 0)
        likely |= self._masks & value.is_mask
        candidates = (self._values[index] for index in np.flatnonzero(likely))
        return [number for number, candidate in candidates if equal(value, candidate, grain)]


def _near_signs(one: Floats, other: Floats, typical: Floats, grain: float) -> Array:
    """Return for which rows the means and extremes agree to rounding."""
    bound = 16 * grain * (one[..., :1] + typical[..., None] + np.abs(one))
    return np.asarray(np.all(np.abs(one - other) <= bound, axis=-1))


def _alike(one: Value, other: Value, grain: float) -> bool:
    typical = max(one.typical, other.typical)
    if not _near_signs(one.signs, other.signs, np.array(typical), grain):
        return False
    few, many = sorted((one, other), key=lambda value: value.size)
    here, there = few.sorted[:, None], many.sorted.reshape(few.size, -1)
    bound = grain * (np.abs(here) + CANCELLED * typical)
    with np.errstate(invalid="ignore"):
        near = np.abs(here - there) <= bound
    return bool(np.all(near | (here == there) | (np.isnan(here) & np.isnan(there))))


# "moved": the output has the numbers of the first input, in another order or shape; "selected": the outputs are parts
# of the inputs, or inputs put together.
Kind = Literal["computed", "moved", "selected"]


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a framework's op."""

    name: str
    line: str  # the user's line, as "file:line"; "" if there is none
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kind: Kind = "computed"


class Calls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ops in the order of their execution, and the tensors that the module takes and returns."""

    ops: list[Op]
    returned: tuple[int, ...]
    cut: bool  # tensors are missing, as there was no room for them
    taken: tuple[int, ...] = ()


class Recording(msgspec.Struct, frozen=True):
    """The ops of a module's call, with their tensors; those of an op that only moves are not repeated."""

    calls: Calls
    arrays: Mapping[int, Array]


class Recorder:
    """Collects ops as they are executed, with arrays of at most `room` bytes.

    `identity`: tells tensors apart; it changes when one is written to. `array`: returns the numbers of a tensor.
    """

    def __init__(self, identity: Callable[[Any], Hashable], array: Callable[[Any], Array], room: int = LARGEST) -> None:
        self.identity, self.array, self.room = identity, array, room
        self.ops: list[Op] = []
        self.arrays: dict[int, Array] = {}
        self.cut = False
        self._numbers: dict[Hashable, int] = {}
        self._seen: list[Any] = []  # while a tensor is kept, no other has its identity

    def knows(self, tensor: Any) -> bool:
        """Return whether a tensor, as it is now, has a number."""
        return self.identity(tensor) in self._numbers

    def number(self, tensor: Any) -> int:
        """Return the number of a tensor that an op takes; one that no op has returned is an input or the like."""
        if not self.knows(tensor):
            self._keep(self._new(tensor), tensor, LARGEST_GIVEN)
        return self._numbers[self.identity(tensor)]

    def add(self, name: str, line: str, inputs: Sequence[int], outputs: Sequence[Any], kind: Kind = "computed") -> None:
        """Record an op that has been executed, with its output tensors."""
        fresh = [tensor for tensor in outputs if not self.knows(tensor)]
        numbers = tuple(map(self._new, fresh))
        if numbers:
            self.ops.append(Op(name, line, tuple(inputs), numbers, kind))
        for number, tensor in zip(numbers, fresh, strict=True):
            if kind != "moved":
                self.cut |= not self._keep(number, tensor, self.room)

    def recording(self, returned: Sequence[Any]) -> Recording:
        """Return what was recorded, with what the module returns: tensors, or arrays of their numbers."""
        numbers = [self._find(each) if isinstance(each, np.ndarray) else self.number(each) for each in returned]
        return Recording(Calls(self.ops, tuple(numbers), self.cut), self.arrays)

    def _find(self, array: Array) -> int:
        """Return the last tensor that holds an array's numbers; one that none holds is made of what is not recorded."""
        value = Value(array)
        equal_ones = (n for n in sorted(self.arrays, reverse=True) if equal(Value(self.arrays[n]), value))
        if (number := next(equal_ones, None)) is None:
            number = len(self._seen)
            self._seen.append(array)
            self.arrays[number] = array
        return number

    def _new(self, tensor: Any) -> int:
        number = self._numbers[self.identity(tensor)] = len(self._seen)
        self._seen.append(tensor)
        return number

    def _keep(self, number: int, tensor: Any, largest: int) -> bool:
        """Keep the numbers of a tensor; return False if there is no room."""
        array = self.array(tensor)
        array = array.astype(KINDS.get(array.dtype.kind, np.float64))  # a copy, as what it is a view of may change
        if array.nbytes > min(self.room, largest):
            return False
        self.room -= array.nbytes
        self.arrays[number] = array
        return True


def write(recording: Recording, folder: Path, arguments: Sequence[Array] = ()) -> None:
    """Write a recording to ops.json and ops.safetensors; `arguments` are the tensors that the module is called with."""
    made = {number for op in recording.calls.ops for number in op.outputs}
    given = {number: Value(array) for number, array in recording.arrays.items() if number not in made}
    values = list(map(Value, arguments))
    taken = [number for number, value in given.items() if any(equal(value, each) for each in values)]
    calls = msgspec.structs.replace(recording.calls, taken=tuple(taken))
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder / f"{FILE}.safetensors", 100 * len(recording.arrays))
    for number, array in recording.arrays.items():
        writer.add(str(number), np.ascontiguousarray(array).reshape(array.shape))
    writer.close()
    (folder / f"{FILE}.json").write_bytes(msgspec.json.encode(calls))


def read(folder: Path) -> Recording:
    """Read a recording from a folder; the tensors stay on disk until they are used. Raises TraceError."""
    path, tensors = folder / f"{FILE}.json", TensorFile(folder / f"{FILE}.safetensors")
    try:
        calls = validate.decoded(validate.whole(path, LARGEST_LIST), Calls)
        arrays = {int(key): array for key, array in tensors.items()}
    except (OSError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: cannot be read as a list of ops: {error}") from None
    return Recording(calls, arrays)
