"""What the other side's module is given, in place of a module's own arguments: its inputs, and its masks.

Which input is which, and in what order of axes, is found by their values. A mask that a model makes in its own code, of
the padding and of what is later, reaches a module as an argument. Both sides' masks may have other forms (booleans,
zeros and ones, or what is added to scores) and other axes.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment.knobs import AS_GIVEN, INVERTED, LEFT_OUT, THEIRS, Knob, Owner, named, one_of
from parity.runtime.experiment import Mask

LARGEST: Final = 1 << 20  # elements
# What is added to scores that do not count is no larger: float64 keeps nothing of the exponential of it beside 1.
HIDDEN: Final = -40.0
MOST_FORMS: Final = 2  # of a mask of two axes, which may lie along queries or keys
OPPOSITE: Final = "the opposite of the other side's"  # where one side's mask says what counts, and the other's what not
TURNED: Final = "along the other axis"  # of the last two, as where queries do not count that are to be keys


def told(given: Mapping[str, Any], array: Callable[[Any], Array]) -> list[Mask]:
    """Return the masks among the arguments of a call; `array` makes an array of a tensor."""
    bits = [mask for value in given.values() if (mask := _counting(value, array)) is not None]
    return [Mask(shape=list(mask.shape), bits=np.packbits(mask).tobytes()) for mask in bits]


def knobs(
    given: dict[str, Any],
    owner: Owner,
    theirs: Iterable[Mask],
    array: Callable[[Any], Array],
    like: Callable[[Array, Any], Any],
) -> Iterator[Knob]:
    """Yield the masks among the arguments of a call.

    Each can be inverted, left out or laid along another axis, and replaced by one of the other side's (`theirs`) or its
    opposite. The next call takes its arguments from `given`; `array` makes an array of a tensor, and `like` a tensor of
    an array.
    """
    for name, value in given.items():
        knob = named(given, name, owner)._replace(value=AS_GIVEN)
        yield from of_value(value, knob, theirs, array, like)


def lies_along_one(mask: Array) -> bool:
    """Return whether a mask tells of one of its two last axes alone, as of the keys in attention."""
    return bool((mask != mask[..., :1, :]).any() != (mask != mask[..., :1]).any())


def of_value(
    value: Any, knob: Knob, theirs: Iterable[Mask], array: Callable[[Any], Array], like: Callable[[Array, Any], Any]
) -> Iterator[Knob]:
    """Yield what a value can be changed to if it is a mask; `knob` changes it to any other. The rest as in `knobs`."""
    own = _counting(value, array)
    if own is None:
        return
    wholes = (whole for mask in theirs for whole in fitted(_read(mask), own.shape))
    others: list[dict[str, Array | None]] = [{THEIRS: mask, OPPOSITE: ~mask} for mask in wholes]
    alone: dict[str, Array | None] = {INVERTED: ~own, LEFT_OUT: None}
    if own.ndim > 2 and lies_along_one(own):
        alone[TURNED] = own.swapaxes(-2, -1)
    for ways, form in itertools.product((alone, *others), _forms(array(value))):
        made = {
            text: None if each is None else like(form(each), value)
            for text, each in ways.items()
            if each is None or np.any(own != each)
        }
        yield knob._replace(changed=one_of(knob.changed, {AS_GIVEN: value, **made}), words=tuple(made))


def fitted(mask: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """Yield a mask with as many axes as a shape, of its lengths or of 1, the nearest form first; none if it has others.

    Its axes stand, in order, for axes of the same length, or else for those along which the shape repeats one. Of a
    mask that is made for the longest sequences, and cut to each, the beginning is taken.
    """
    if mask.ndim > 1 < len(shape) and all(
        many > few > 1 for many, few in zip(mask.shape[-2:], shape[-2:], strict=True)
    ):
        mask = mask[..., : shape[-2], : shape[-1]]
    long = [size for size in mask.shape if size > 1]
    forms = [
        [long[axes.index(number)] if number in axes else 1 for number in range(len(shape))]
        for axes in itertools.combinations(range(len(shape)), len(long))
        if all(shape[axis] in (1, size) for axis, size in zip(axes, long, strict=True))
    ]
    for form in sorted(forms, key=lambda form: sum(map(operator.ne, form, shape)))[:MOST_FORMS]:
        yield np.broadcast_to(mask.reshape(form), tuple(map(max, form, shape)))


def _counting(value: Any, array: Callable[[Any], Array]) -> Array | None:
    """Return what counts according to a mask; None for anything that is no mask."""
    kind, shape = str(getattr(value, "dtype", "")), getattr(value, "shape", ())
    may_count = bool(shape) and ("bool" in kind or (len(shape) > 1 and ("int" in kind or "float" in kind)))
    if not may_count or not 0 < np.prod(shape) <= LARGEST:
        return None
    values = array(value)
    if values.dtype == np.bool_:
        return values
    if values.dtype.kind == "f" and bool(((values == 0) | (values <= HIDDEN)).all()):
        return np.asarray(values == 0)
    return np.asarray(values == 1) if bool(np.isin(values, (0, 1)).all()) else None


def _forms(like: Array) -> list[Callable[[Array], Array]]:
    """Return the forms of a mask like another one: booleans or zeros and ones, what is added to scores, or either."""
    lowest = min(like.min(), -1e30) if like.dtype.kind == "f" else 0
    numbers = [lambda mask: mask.astype(like.dtype)] if like.min() >= 0 else []
    added = [lambda mask: np.where(mask, 0.0, lowest)] if like.dtype.kind == "f" else []
    return [*numbers, *added]


def _read(mask: Mask) -> Array:
    bits = np.unpackbits(np.frombuffer(mask.bits, np.uint8), count=int(np.prod(mask.shape)))
    return bits.astype(np.bool_).reshape(mask.shape)


NEAR: Final = 2.0**-34  # of the largest value: what is nearer is equal
MOST_AXES: Final = 5  # for more there are too many orders to try


Mapped = Callable[[Callable[[Any], Any], Any], Any]  # a nest of containers, of which a function maps the leaves


def exchanged(
    arguments: dict[str, Any],
    known: Sequence[tuple[Array, Array]],
    mapped: Mapped,
    floats: Callable[[Any], Array | None],
    like: Callable[[Array, Any], Any],
) -> dict[str, Any] | None:
    """Return the arguments of a call with the other side's tensors in place of its own.

    None if a tensor of floats is none of those known, or if all are the same on both sides. `known`: pairs of a tensor
    of this side and the other side's, in torch's axes. `floats`: returns the numbers of a tensor of floats, None of
    anything else. `like`: returns a tensor of an array, like another tensor.
    """
    are_same = []

    def with_theirs(leaf: Any) -> Any:
        if (own := floats(leaf)) is None:
            return leaf
        for mine, theirs in known:
            if own.ndim == mine.ndim <= MOST_AXES and mine.dtype.kind == "f":
                for axes in itertools.permutations(range(own.ndim)):
                    if near(np.transpose(mine, axes), own):
                        are_same.append(near(mine, theirs))
                        return like(np.transpose(theirs, axes), leaf)
        raise LookupError("a tensor of floats that the other side has not recorded")

    try:
        replaced: dict[str, Any] = mapped(with_theirs, arguments)
    except LookupError:
        return None
    return None if all(are_same) else replaced


def near(mine: Array, theirs: Array) -> bool:
    """Return whether two arrays of floats are equal to rounding."""
    finite = np.isfinite(mine)
    if mine.shape != theirs.shape or not np.array_equal(finite, np.isfinite(theirs)):
        return False
    mine, theirs = np.where(finite, mine, 0.0), np.where(finite, theirs, 0.0)
    largest = max(np.abs(mine).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    return bool(np.abs(mine - theirs).max(initial=0.0) <= NEAR * largest)
