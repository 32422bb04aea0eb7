"""Causes in the model's inputs: axes exchanged, shifted, encoded, rounded or scaled differently."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from parity.core import precision
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices, choices_if, require
from parity.diagnose.initial_parameters import reshaped
from parity.diagnose.topic import Compared, Question, Sides, compare_with_reference
from parity.trace import keys
from parity.trace.keys import plain

SAME: Final = "as on the other side"
Turn = Callable[[Array], Array]


def questions(sides: Sides) -> Iterator[Question]:
    """Ask about the model's inputs, unless other samples were drawn: then they must differ."""
    if sides.of("sample"):
        return
    asked = set()
    for tensor in sides.of("input"):
        if plain(tensor.name) in keys.MODEL_INPUTS and tensor.name not in asked:
            asked.add(tensor.name)
            yield compare_with_reference(sides, tensor, FORMULA)


def _shifted(array: Array, axis: int, by: int, cyclic: bool) -> Array:
    """Return the array shifted by one along an axis; what leaves comes in again (`cyclic`), or else zeros do."""
    require(array.size > 0, "elements")
    moved = np.roll(array, by, axis)
    if not cyclic:
        np.moveaxis(moved, axis, 0)[0 if by > 0 else -1] = 0
    return moved


UNTURNED: Final[dict[str, Turn]] = {SAME: lambda array: array}
TURNS: Final[dict[int, dict[str, Turn]]] = {
    1: {"axis 0 reversed": lambda array: array[::-1]},
    2: {
        "axes exchanged": lambda array: array.T,
        "axis 0 reversed": lambda array: array[::-1],
        "axis 1 reversed": lambda array: array[:, ::-1],
    },
    4: {
        "height and width exchanged": lambda images: images.swapaxes(2, 3),
        "upside down": lambda images: images[:, :, ::-1],
        "mirrored": lambda images: images[..., ::-1],
        "channels reversed": lambda images: images[:, ::-1],
        "samples reversed": lambda images: images[::-1],
        "reshaped to channels last": lambda images: reshaped(images, (0, 2, 3, 1)),
    },
}
MOVES: Final[dict[str, Turn]] = {
    f"one {word} along axis {axis}{', cyclic' * cyclic}": functools.partial(_shifted, axis=axis, by=by, cyclic=cyclic)
    for axis in (0, 1)
    for word, by in (("later", 1), ("earlier", -1))
    for cyclic in (False, True)
}


def _predict(
    tensor: Compared, layout: str, moved: str, offset: int, encoding: str, rounded: str, scale: float, shift: float
) -> dict[str, Array]:
    turned = (UNTURNED | TURNS.get(tensor.reference.ndim, {}))[layout](tensor.reference)
    value = (UNTURNED | MOVES)[moved](turned)
    if not np.issubdtype(value.dtype, np.integer):
        return {"input": value.astype(precision.dtype(rounded)).astype(np.float64) * scale + shift}
    require(offset >= 0 or not np.issubdtype(value.dtype, np.unsignedinteger), "numbers that may be negative")
    value = value + offset
    classes = tensor.seen["input"].value.shape[-1:] or (1,)
    return {"input": value if encoding == "ids" else (value[..., None] == np.arange(*classes)).astype(np.float64)}


def _moves(tensor: Compared, settings: Settings) -> Iterable[str]:
    axes = tuple(f"axis {axis}" for axis in range(tensor.reference.ndim))
    return (SAME, *(name for name in MOVES if name.removesuffix(", cyclic").endswith(axes)))


def _are_ids(tensor: Compared) -> bool:
    return np.issubdtype(tensor.reference.dtype, np.integer)


def _scales(tensor: Compared, settings: Settings) -> Iterator[float]:
    """Yield factors to try: without a shift, and with one."""
    yield 1.0
    unscaled, recorded = _unscaled(tensor, settings)
    for source in (unscaled, unscaled - unscaled.mean()):
        yield float(np.vdot(source, recorded) / np.vdot(source, source))


def _shifts(tensor: Compared, settings: Settings) -> Iterator[float]:
    """Yield the constants to try that may have been added."""
    yield 0.0
    unscaled, recorded = _unscaled(tensor, settings)
    yield float(np.mean(recorded - unscaled * settings["scale"]))


def _unscaled(tensor: Compared, settings: Settings) -> tuple[Array, Array]:
    """Return what is scaled and shifted, and what was recorded. Raise NotApplicable where too few values differ."""
    recorded = tensor.seen["input"].value
    unscaled = _predict(tensor, **{**settings, "scale": 1.0, "shift": 0.0})["input"]
    require(unscaled.shape == recorded.shape and np.issubdtype(unscaled.dtype, np.floating), "numbers of one shape")
    require(len(np.unique(unscaled)) >= solve.ENOUGH, "enough distinct values to solve for a constant")
    return unscaled, recorded


FORMULA: Final[Formula[Compared]] = Formula(
    _predict,
    (
        Trait("layout", "input.layout", lambda tensor, _: UNTURNED | TURNS.get(tensor.reference.ndim, {})),
        Trait("moved", "input.shift", _moves),
        Trait("offset", "input.ids", choices_if(_are_ids, 0, 1, -1)),
        Trait("encoding", "input.one_hot", choices_if(_are_ids, "ids", "one-hot")),
        Trait("rounded", "input.precision", choices("float64", "float32", "bfloat16", "float16")),
        Trait("scale", "input.scale", _scales),
        Trait("shift", "input.scale", _shifts),
    ),
)
