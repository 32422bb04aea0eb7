"""Causes before the first step: how a parameter was converted from the shared initial value, or that it was not."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from parity.core import precision
from parity.core.arrays import Array
from parity.diagnose import initialisers, solve
from parity.diagnose.formula import Formula, Settings, Trait, choices
from parity.diagnose.observation import InitialParameter

DRAWN: Final = "drawn"
PACKED: Final = ("in_proj_weight", "in_proj_bias")
KERNELS: Final[dict[str, Callable[[Array], Array]]] = {
    DRAWN: lambda kernel: kernel,
    "flipped": lambda kernel: kernel[:, :, ::-1, ::-1],
    "flipped vertically": lambda kernel: kernel[:, :, ::-1],
    "flipped horizontally": lambda kernel: kernel[:, :, :, ::-1],
    "height and width exchanged": lambda kernel: kernel.swapaxes(2, 3),
    "inputs and outputs exchanged": lambda kernel: kernel.swapaxes(0, 1),
    "inputs and outputs exchanged, flipped": lambda kernel: kernel.swapaxes(0, 1)[:, :, ::-1, ::-1],
    "reshaped to (H, W, I, O)": lambda kernel: _reshaped(kernel, (2, 3, 1, 0)),
    "reshaped to (H, W, O, I)": lambda kernel: _reshaped(kernel, (2, 3, 0, 1)),
}


def _predict(
    start: InitialParameter,
    matrix: str,
    packing: str,
    heads: str,
    conv2d: str,
    conv_transpose2d: str,
    scale: float,
    rounded: str,
    origin: str,
) -> dict[str, Array]:
    """Return the parameter that the settings make of the drawn value."""
    if origin != DRAWN:
        return {"parameter": initialisers.value(start, origin)}
    value = _blocks(start, matrix, packing, heads) if start.drawn.ndim < 3 else start.drawn
    for turn in (conv2d, conv_transpose2d):
        value = KERNELS[turn](value)
    return {"parameter": (value * scale).astype(precision.dtype(rounded)).astype(np.float64)}


def _blocks(start: InitialParameter, matrix: str, packing: str, heads: str) -> Array:
    """Return a matrix, or the three of a packed attention projection, each transposed and in the given order."""
    if not start.name.endswith(PACKED):
        return _with_heads_reordered(start, _transposed(start.drawn, matrix), heads)
    blocks = dict(zip("qkv", np.split(start.drawn, 3), strict=True))
    return np.concatenate([_with_heads_reordered(start, _transposed(blocks[name], matrix), heads) for name in packing])


def _transposed(block: Array, matrix: str) -> Array:
    if matrix == "reshaped":
        return _reshaped(block, (1, 0))
    return block.T if matrix == "transposed" else block


def _reshaped(array: Array, axes: tuple[int, ...]) -> Array:
    """Return the array as it comes out if it was reshaped where its axes should have been permuted."""
    shape = [array.shape[axis] for axis in axes]
    return np.ascontiguousarray(array).reshape(shape).transpose(np.argsort(axes))


def _with_heads_reordered(start: InitialParameter, block: Array, heads: str) -> Array:
    """Return a block with its rows (of the output projection, its columns) assigned to the heads in another order."""
    if heads == DRAWN or not start.case.model.heads:
        return block
    axis = 1 if start.name.endswith("out_proj.weight") else 0
    size, count = block.shape[axis], start.case.model.heads
    fewest = count if heads == "interleaved" else size // count
    return np.take(block, np.arange(size).reshape(fewest, -1).T.ravel(), axis)


def _matrices(start: InitialParameter, settings: Settings) -> Iterable[str]:
    return (DRAWN, "transposed", "reshaped") if start.drawn.ndim == 2 else (DRAWN,)


def _packings(start: InitialParameter, settings: Settings) -> Iterable[str]:
    packed = start.name.endswith(PACKED)
    return map("".join, itertools.permutations("qkv")) if packed else ("qkv",)


def _heads(start: InitialParameter, settings: Settings) -> Iterable[str]:
    attention = start.name.endswith((*PACKED, "out_proj.weight"))
    return (DRAWN, "interleaved", "interleaved the other way") if attention else (DRAWN,)


def _kernels(kind: str) -> Callable[[InitialParameter, Settings], Iterable[str]]:
    def values(start: InitialParameter, settings: Settings) -> Iterable[str]:
        return KERNELS if start.drawn.ndim == 4 and start.kind == kind else (DRAWN,)

    return values


def _scales(start: InitialParameter, settings: Settings) -> Iterator[float]:
    yield 1.0
    unscaled = _predict(start, **{**settings, "scale": 1.0})["parameter"]
    factor = solve.scale(unscaled, start.seen["parameter"].value)
    if factor is not None:
        yield factor


def _origins(start: InitialParameter, settings: Settings) -> Iterator[str]:
    yield DRAWN
    yield from initialisers.fitting(start)


FORMULA: Final[Formula[InitialParameter]] = Formula(
    _predict,
    (
        Trait("matrix", "linear.weight", _matrices),
        Trait("packing", "attention.packing", _packings),
        Trait("heads", "attention.heads", _heads),
        Trait("conv2d", "conv2d.weight", _kernels("conv2d")),
        Trait("conv_transpose2d", "conv_transpose", _kernels("conv_transpose2d")),
        Trait("rounded", "weight.precision", choices("float64", "float32", "bfloat16", "float16")),
        Trait("scale", "weight.scale", _scales),
        Trait("origin", "initialisation", _origins),
    ),
)
