"""Chosen inputs for a module, and what it returns for each: the evidence of what it does.

The probes are made from the inputs that the module had in the pair's run, and from numbers of the counter-based source,
so that both sides get the same. The first input of floating-point numbers is varied; of integers and masks only the
dependence on them is asked.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from parity.core import random
from parity.core.arrays import Array, Floats
from parity.trace.tensorfile import TensorFile, Writer

FILE: Final = "responses"  # in a folder, with the suffix .safetensors
SEED: Final = 0
POINTS: Final = 800  # of a curve, in as many calls as they take
SECONDS: Final = 8.0  # of the processor, after which no further probe is begun but the last
CALLS: Final = 24  # for a curve at most
NEAR, FAR = 8.0, 64.0  # most points of a curve are within NEAR of zero, all are within FAR
UNITS: Final = 64  # elements of the longest last axis that is probed by one call for each
ELEMENTS: Final = 3  # single elements that are changed
LEVELS: Final = (0.7, -0.7)

Inputs = list[Array]


class Responses(msgspec.Struct, frozen=True):
    """What a module returned for the probes of these inputs; it may have refused some of them."""

    inputs: Inputs
    outputs: Mapping[str, Array]


def responses(call: Callable[[Inputs], Array], inputs: Sequence[Array]) -> Responses:
    """Return what a module answers to the probes.

    Args:
        call: calls the module in float64 and returns the output that differs; inputs and output have canonical axes.
        inputs: those of the module in the pair's run.
    """
    outputs: dict[str, Array] = {}
    start = time.process_time()
    for name, probe in probes(inputs):
        if time.process_time() - start > SECONDS and name != "last":
            continue
        try:
            outputs[name] = np.array(call(probe))
        except Exception:  # a module may refuse any input; then this probe tells nothing
            continue
    return Responses(list(inputs), outputs)


def varied(inputs: Sequence[Array]) -> int | None:
    """Return which input is varied: the first of floating-point numbers."""
    return next((number for number, array in enumerate(inputs) if array.dtype.kind == "f" and array.size), None)


def others(inputs: Sequence[Array]) -> list[int]:
    """Return the inputs that are integers or masks."""
    return [number for number, array in enumerate(inputs) if array.dtype.kind in "iub" and array.size]


def grid(size: int) -> Floats:
    """Return the points of a curve that as many calls of an input of this size give, in ascending order."""
    count = size * min(CALLS, -(-POINTS // size))
    tail = np.linspace(NEAR, FAR, max(count // 8, 2))[1:]
    return np.concatenate([-tail[::-1], np.linspace(-NEAR, NEAR, count - 2 * tail.size), tail])


def probes(inputs: Sequence[Array]) -> Iterator[tuple[str, Inputs]]:
    """Yield the probes by name, in the order in which they are to be called."""
    yield "given", list(inputs)
    yield "again", list(inputs)
    if (number := varied(inputs)) is not None:
        for name, array in _variations(inputs[number].astype(np.float64)):
            yield name, [*inputs[:number], array, *inputs[number + 1 :]]
    for number in others(inputs):
        flipped = ~inputs[number] if inputs[number].dtype == np.bool_ else np.flip(inputs[number]).copy()
        yield f"flipped {number}", [*inputs[:number], flipped, *inputs[number + 1 :]]
    yield "last", list(inputs)


def _variations(x: Floats) -> Iterator[tuple[str, Floats]]:
    y = random.normal(SEED, "probe", x.shape)
    yield "zero", np.zeros_like(x)
    yield "other", y
    yield "sum", x + y
    yield "double", 2.0 * x
    yield "raised", x + 1.0
    for level in LEVELS:
        yield f"level {level}", np.full_like(x, level)
    yield from _changed(x, y)
    points = grid(x.size)
    for start in range(0, points.size, x.size):
        yield f"curve {start // x.size}", points[start : start + x.size].reshape(x.shape)
    if x.ndim and x.shape[-1] <= UNITS:
        for element in range(x.shape[-1]):
            yield f"unit {element}", np.eye(1, x.size, element).reshape(x.shape)


def _changed(x: Floats, y: Floats) -> Iterator[tuple[str, Floats]]:
    """Yield the input with a part of it changed or reordered."""
    for number in range(ELEMENTS):
        element = elements(x.size)[number]
        yield f"element {number}", np.where(np.arange(x.size).reshape(x.shape) == element, y + 1.5, x)
    for axis, length in enumerate(x.shape):
        if length > 1:
            at = np.arange(length).reshape(-1, *(1,) * (x.ndim - axis - 1)) == middle(length)
            yield f"part {axis}", np.where(at, y, x)
            yield f"reversed {axis}", np.flip(x, axis).copy()


def elements(size: int) -> list[int]:
    """Return the elements that are changed one at a time."""
    return [int(word) % size for word in random.bits(SEED, "elements", ELEMENTS)]


def middle(length: int) -> int:
    """Return the position along an axis that is changed."""
    return length // 2


def write(table: Responses, folder: Path) -> None:
    """Write the inputs and responses to a file of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder / f"{FILE}.safetensors", 100 * len(table.outputs))
    for number, array in enumerate(table.inputs):
        writer.add(f"input/{number}", array)
    for name, array in table.outputs.items():
        writer.add(f"output/{name}", array)
    writer.close()


def read(folder: Path) -> Responses:
    """Read what was written; the arrays stay on disk until they are used. Raises TraceError."""
    tensors = TensorFile(folder / f"{FILE}.safetensors")
    inputs = [array for key, array in tensors.items() if key.startswith("input/")]
    outputs = {key.removeprefix("output/"): array for key, array in tensors.items() if key.startswith("output/")}
    return Responses(inputs, outputs)


def inputs(folder: Path) -> Inputs:
    """Return the inputs of responses in a folder; none if there are no responses."""
    return read(folder).inputs if (folder / f"{FILE}.safetensors").exists() else []
