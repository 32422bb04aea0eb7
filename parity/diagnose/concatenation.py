"""What a composite module joins: the tensors that a concatenation is made of, and in which order.

As in wiring.py, the tensor stands between modules and the parts are searched for among the tensors recorded before it.
Concatenating copies numbers, so each part is equal to its piece of the whole, bit by bit.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import wiring
from parity.diagnose.formula import Formula, Settings, Trait, require
from parity.diagnose.observation import Seen
from parity.diagnose.sides import Side, Sides

Parts = tuple[str, ...]
MOST_PARTS: Final = 8


class Joined(NamedTuple):
    """A tensor that may be a concatenation.

    Attributes:
        name: its key.
        earlier: the tensors recorded before it that have its shape but for one axis, on which they are shorter, by key.
        names: the keys that stand for the same tensor as another one in the reference, with the first such key.
        seen: the tensor itself, as `input`.
    """

    name: str
    earlier: Mapping[str, Array]
    names: Mapping[str, str]
    seen: Mapping[str, Seen]

    @property
    def value(self) -> Array:
        """Return the tensor."""
        return self.seen["input"].value


def observe(sides: Sides, key: str, step: int, replica: int) -> tuple[Joined, Joined] | None:
    """Return a tensor on both sides with what it may be made of; None if the reference's is no concatenation."""
    reference, candidate = (_recorded(side, key, step, replica) for side in sides.both)
    if (
        reference is None
        or candidate is None
        or not any(True for axis in _axes(reference) for _ in found(reference, axis))
    ):
        return None
    names = wiring.repeated(reference.earlier)
    return reference._replace(names=names), candidate._replace(names=names)


def _recorded(side: Side, key: str, step: int, replica: int) -> Joined | None:
    value, earlier = side.value(key, step, replica), {}
    if value is None:
        return None
    for name, array in side.tensors(step, replica).items():
        if name == key:
            break
        if array.dtype == value.value.dtype and _axis(array.shape, value.value.shape) is not None:
            earlier[name] = array
    return Joined(key, earlier, {}, {"input": value})


def _axis(part: tuple[int, ...], whole: tuple[int, ...]) -> int | None:
    """Return the only axis on which a part is shorter than the whole, or None."""
    if len(part) != len(whole):
        return None
    others = [axis for axis, sizes in enumerate(zip(part, whole, strict=True)) if sizes[0] != sizes[1]]
    return others[0] if len(others) == 1 and 0 < part[others[0]] < whole[others[0]] else None


def _axes(joined: Joined, settings: Settings | None = None) -> list[int]:
    """Return the axes along which earlier tensors are pieces of the whole."""
    axes = {_axis(array.shape, joined.value.shape) for array in joined.earlier.values()}
    return sorted(axis for axis in axes if axis is not None)


def found(joined: Joined, axis: int, begin: int = 0, before: Parts = ()) -> Iterator[Parts]:
    """Yield the sequences of earlier tensors that make up the whole from position `begin` of an axis on."""
    whole = joined.value
    if begin == whole.shape[axis]:
        yield before
        return
    tried = set()
    latest = list(joined.earlier.items())[::-1] if len(before) < MOST_PARTS else []
    for name, array in latest:
        first = joined.names.get(name, name)
        size = array.shape[axis]
        if first in tried or _axis(array.shape, whole.shape) != axis or begin + size > whole.shape[axis]:
            continue
        piece = whole.take(range(begin, begin + size), axis)
        if piece.flat[0] == array.flat[0] and np.array_equal(piece, array):
            tried.add(first)
            yield from found(joined, axis, begin + size, (*before, first))


def _parts(joined: Joined, settings: Settings) -> Iterator[Parts]:
    """Yield the sequences of parts that make up the whole, of which a reference of the same data has one alone."""
    return found(joined, settings["axis"])


def _predict(joined: Joined, axis: int, parts: Parts) -> dict[str, Array]:
    require(axis < joined.value.ndim, "the axis")
    arrays = [_of_size(joined, part) for part in parts]
    shapes = {_axis(array.shape, joined.value.shape) for array in arrays}
    require(shapes == {axis}, "parts along the axis")
    return {"input": np.concatenate(arrays, axis)}


def _of_size(joined: Joined, part: str) -> Array:
    """Return a part, under whichever of its names it was recorded."""
    arrays = (array for name, array in joined.earlier.items() if joined.names.get(name, name) == part)
    array = next(arrays, None)
    require(array is not None, f"{part} before")
    assert array is not None
    return array


def _order(reference: Parts, candidate: Parts) -> str:
    """Return the cause for the same parts in another order, or an empty string."""
    return "concatenation.order" if sorted(reference) == sorted(candidate) else ""


FORMULA: Final = Formula(
    _predict,
    (
        Trait("axis", "module.wiring", _axes),
        Trait("parts", "module.wiring", _parts, _order),
    ),
    is_function=True,
)
