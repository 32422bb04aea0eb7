"""Causes before the first step: how a parameter was converted from the shared initial value, or that it was not.

That a parameter has nothing in common with the values drawn for it is no proof: a conversion may be wrong in an unknown
way. So it must also fill the range of a known initialiser of its layer, or be one of its constants.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.config import schema, weights
from parity.core import precision
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Seen, Settings, Trait, choices, choices_if, require
from parity.diagnose.topic import Question, Side, Sides

CONSTANTS: Final = {"zeros": 0.0, "ones": 1.0}
NORMALS: Final = {"normal(0, 1)": 1.0, "normal(0, 0.05)": 0.05, "normal(0, 0.02)": 0.02}
ENOUGH: Final = 64  # values from which a distribution can be recognised
NEAR: Final = 0.01  # fraction of the mean distance between drawn values within which a value is near one of them
COMMON: Final = 0.2  # fraction of the values that may be near a drawn one by chance
FOLLOWS: Final = 6.0  # standard errors that the correlation of independent values may reach by chance
# The largest of n uniform values is further than SURE / n below the bound with a probability of e^-12.
SURE: Final = 12.0
DRAWN: Final = "drawn"
PACKED: Final = ("in_proj_weight", "in_proj_bias")
WITH_HEADS: Final = (*PACKED, "out_proj.weight")
HEADS: Final = (DRAWN, "interleaved", "interleaved the other way")
PACKINGS: Final = tuple(map("".join, itertools.permutations("qkv")))
KERNELS: Final[dict[str, Callable[[Array], Array]]] = {
    DRAWN: lambda kernel: kernel,
    "flipped": lambda kernel: kernel[:, :, ::-1, ::-1],
    "flipped vertically": lambda kernel: kernel[:, :, ::-1],
    "flipped horizontally": lambda kernel: kernel[:, :, :, ::-1],
    "height and width exchanged": lambda kernel: kernel.swapaxes(2, 3),
    "inputs and outputs exchanged": lambda kernel: kernel.swapaxes(0, 1),
    "inputs and outputs exchanged, flipped": lambda kernel: kernel.swapaxes(0, 1)[:, :, ::-1, ::-1],
    "reshaped to (H, W, I, O)": lambda kernel: reshaped(kernel, (2, 3, 1, 0)),
    "reshaped to (H, W, O, I)": lambda kernel: reshaped(kernel, (2, 3, 0, 1)),
}


class InitialParameter(NamedTuple):
    """A parameter before the first step."""

    name: str
    kind: str  # the kind of the module that owns it
    drawn: Array  # the value that both sides were told to start from
    case: schema.Case
    seen: Mapping[str, Seen]  # `parameter`


def _origins(start: InitialParameter, settings: Settings) -> Iterator[str]:
    """Yield what the parameter may come from: the values drawn for it, or an initialiser, by its name."""
    yield DRAWN
    parameter = start.seen["parameter"].value
    for name, constant in CONSTANTS.items():
        if (parameter == constant).all() and not (start.drawn == constant).all():
            yield name
    if parameter.size >= ENOUGH and _is_unrelated(parameter.ravel(), start.drawn.ravel()):
        largest = float(np.abs(parameter).max())
        yield from (name for name, bound in _bounds(start) if 1 - SURE / parameter.size < largest / bound <= 1 + 1e-6)
        yield from (name for name, deviation in NORMALS.items() if _is_normal(parameter / deviation))


def _is_unrelated(values: Array, drawn: Array) -> bool:
    """Return whether values have nothing in common with the drawn ones.

    Few lie much nearer to a drawn value than chance would put them, and they are not correlated with the drawn values,
    as those with something added are.
    """
    ordered = np.sort(drawn)
    positions = np.searchsorted(ordered, values).clip(1, drawn.size - 1)
    distances = np.minimum(np.abs(values - ordered[positions - 1]), np.abs(values - ordered[positions]))
    if np.mean(distances < NEAR * np.ptp(drawn) / drawn.size) >= COMMON:
        return False
    correlation = np.corrcoef(values, drawn)[0, 1] if values.shape == drawn.shape else 0.0
    return not abs(correlation) > FOLLOWS / math.sqrt(drawn.size)


def _is_normal(values: Array) -> bool:
    """Return whether variance and fourth moment are those of a normal distribution, within four standard errors."""
    square, fourth = float(np.mean(values**2)), float(np.mean(values**4))
    return abs(square - 1) < 4 * math.sqrt(2 / values.size) and abs(fourth - 3) < 4 * math.sqrt(96 / values.size)


def _bounds(start: InitialParameter) -> Iterator[tuple[str, float]]:
    """Yield uniform initialisers with their bounds for the parameter's shape."""
    yield "uniform(-0.05, 0.05)", 0.05
    if start.drawn.ndim < 2:
        return
    outputs, inputs, *field = start.drawn.shape  # of PyTorch's layout of weights
    if start.kind == "conv_transpose2d":
        outputs, inputs = inputs, outputs
    inputs, outputs = inputs * math.prod(field), outputs * math.prod(field)  # fan-in and fan-out
    yield "glorot_uniform", math.sqrt(6 / (inputs + outputs))
    yield "kaiming_uniform(a=sqrt(5))", 1 / math.sqrt(inputs)
    yield "he_uniform", math.sqrt(6 / inputs)
    yield "lecun_uniform", math.sqrt(3 / inputs)
    if start.name.endswith("in_proj_weight"):
        yield "glorot_uniform of q, k and v each", math.sqrt(6 / (inputs + outputs // 3))
    if (heads := start.case.model.heads) and "_proj" in start.name:  # of d_model inputs
        yield "glorot_uniform of (d, heads, size)", math.sqrt(6 / (inputs * (heads + inputs // heads)))


def questions(sides: Sides) -> Iterator[Question]:
    """Ask about parameters that differ before the first step."""
    names = [tensor.name for tensor in sides.unequal if tensor.step is None and tensor.kind == "parameter"]
    drawn = weights.initial(sides.reference.case) if names else {}
    for name in dict.fromkeys(names):
        if name in drawn:
            yield Question("parameter", name, FORMULA, [observe(side, name, drawn[name]) for side in sides.both])


def observe(side: Side, name: str, drawn: Array) -> InitialParameter | None:
    """Return a parameter before the first step, together with the value that it should have had."""
    value = side.value(f"parameter/{name}", None)
    kind = side.modules.get(name.rpartition(".")[0], "")
    return None if value is None else InitialParameter(name, kind, drawn, side.case, {"parameter": value})


def _predict(
    start: InitialParameter, conv2d: str, conv_transpose2d: str, scale: float, rounded: str, origin: str, **block: str
) -> dict[str, Array]:
    """Return the parameter that the settings make of the drawn value; of a random initialiser, what was recorded."""
    if origin in CONSTANTS:
        return {"parameter": np.full(start.drawn.shape, CONSTANTS[origin])}
    if origin != DRAWN:
        return {"parameter": start.seen["parameter"].value}
    value = _blocks(start, **block) if start.drawn.ndim < 3 else start.drawn
    for turn in (conv2d, conv_transpose2d):
        value = KERNELS[turn](value)
    return {"parameter": (value * scale).astype(precision.dtype(rounded)).astype(np.float64)}


def _blocks(start: InitialParameter, matrix: str, packing: str, heads: str) -> Array:
    """Return a matrix, or the three of a packed attention projection, each transposed and in the given order."""
    if not start.name.endswith(PACKED):
        return _convert_block(start, start.drawn, matrix, heads)
    require(start.drawn.ndim > 0 and len(start.drawn) % 3 == 0, "queries, keys and values")
    blocks = dict(zip("qkv", np.split(start.drawn, 3), strict=True))
    return np.concatenate([_convert_block(start, blocks[name], matrix, heads) for name in packing])


def reshaped(array: Array, axes: tuple[int, ...]) -> Array:
    """Return the array as it comes out if it was reshaped where its axes should have been permuted."""
    shape = [array.shape[axis] for axis in axes]
    return np.ascontiguousarray(array).reshape(shape).transpose(np.argsort(axes))


def _convert_block(start: InitialParameter, block: Array, matrix: str, heads: str) -> Array:
    """Return a block transposed, and its rows (of the output projection, its columns) assigned to other heads."""
    if matrix != DRAWN:
        block = reshaped(block, (1, 0)) if matrix == "reshaped" else block.T
    if heads == DRAWN or not start.case.model.heads:
        return block
    axis = 1 if start.name.endswith("out_proj.weight") else 0
    require(block.ndim > axis, "rows or columns for the heads")
    size, count = block.shape[axis], start.case.model.heads
    fewest = count if heads == "interleaved" else size // count
    require(fewest > 0 and size % fewest == 0, "a size that the number of heads divides")
    return np.take(block, np.arange(size).reshape(fewest, -1).T.ravel(), axis)


def _kernels(kind: str) -> Callable[[InitialParameter, Settings], Iterable[str]]:
    return choices_if(lambda start: start.drawn.ndim == 4 and start.kind == kind, *KERNELS)


def _scales(start: InitialParameter, settings: Settings) -> Iterator[float]:
    yield 1.0
    unscaled = _predict(start, **{**settings, "scale": 1.0})["parameter"]
    yield from solve.scale(unscaled, start.seen["parameter"].value)


FORMULA: Final[Formula[InitialParameter]] = Formula(
    _predict,
    (
        Trait(
            "matrix", "linear.weight", choices_if(lambda start: start.drawn.ndim == 2, DRAWN, "transposed", "reshaped")
        ),
        Trait("packing", "attention.packing", choices_if(lambda start: start.name.endswith(PACKED), *PACKINGS)),
        Trait("heads", "attention.heads", choices_if(lambda start: start.name.endswith(WITH_HEADS), *HEADS)),
        Trait("conv2d", "conv2d.weight", _kernels("conv2d")),
        Trait("conv_transpose2d", "conv_transpose", _kernels("conv_transpose2d")),
        Trait("rounded", "weight.precision", choices("float64", "float32", "bfloat16", "float16")),
        Trait("scale", "weight.scale", _scales),
        Trait("origin", "initialisation", _origins),
    ),
    lambda start: require(start.drawn.size > 0 and start.drawn.dtype.kind != "b", "numbers"),
)
