"""Causes in layers of one matrix: linear layers (transposed, bias, activation) and embeddings (other rows, a scale)."""

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices, choices_if, require
from parity.diagnose.layers.activations import FUNCTIONS
from parity.diagnose.layers.call import Call, far, optional, parameter

ROWS: Final = 16  # rows that are computed first, to reject settings that are far off
TIMES: Final = {"added": 1.0, "left out": 0.0, "added twice": 2.0}  # factor of a bias, by setting
BIASES: Final = choices_if(lambda call: "bias" in call.parameters, *TIMES)
OFFSETS: Final = {"as given": 0, "one too many": 1, "one too few": -1}  # of the ids of an embedding
CLIPPED: Final = "clipped to the table"


def _check_linear(call: Call) -> None:
    weight, x, y = parameter(call, "weight", 2), call.inputs[0], call.output
    require(x.ndim > 0 and x.shape[-1] == weight.shape[1], "an input of the weight's size")
    require(y.shape == (*x.shape[:-1], len(weight)), "an output of the weight's size")
    optional(call, "bias", (1, len(weight)))


def _linear(call: Call, **settings: Any) -> dict[str, Array]:
    weight = call.parameters["weight"]
    rows = call.inputs[0].reshape(-1, call.inputs[0].shape[-1])
    y = call.output
    require(not far(_applied(call, rows[:ROWS], settings), y.reshape(-1, y.shape[-1])[:ROWS]), "rows that are near")
    return {"output": _applied(call, rows, settings).reshape(*call.inputs[0].shape[:-1], len(weight))}


def _applied(call: Call, rows: Array, settings: Settings) -> Array:
    weight = call.parameters["weight"]
    result = rows @ (weight if settings["weight"] == "transposed" else weight.T)
    if "bias" in call.parameters:
        result = result + TIMES[settings["bias"]] * call.parameters["bias"]
    return FUNCTIONS[settings["activation"]](result)


def _is_square(call: Call) -> bool:
    return len(set(call.parameters["weight"].shape)) == 1


LINEAR = Formula(
    _linear,
    (
        Trait("weight", "linear.weight", choices_if(_is_square, "(out, in)", "transposed")),
        Trait("bias", "linear.bias", BIASES),
        Trait("activation", "linear.activation", choices(*FUNCTIONS)),
    ),
    _check_linear,
)


def _check_embedding(call: Call) -> None:
    parameter(call, "weight", 2)
    require(call.output.shape[:-1] == call.inputs[0].shape and call.output.ndim > 0, "a vector for each id")


def _embedding(call: Call, ids: str, padding_idx: int | None, scale: float) -> dict[str, Array]:
    table = call.parameters["weight"]
    rows = call.inputs[0].astype(np.int64) + OFFSETS.get(ids, 0)
    if ids == CLIPPED:
        rows = rows.clip(0, len(table) - 1)
    require(not rows.size or 0 <= rows.min() <= rows.max() < len(table), "ids of the table's rows")
    vectors = table[rows] * scale
    vectors[rows == padding_idx] = 0.0
    return {"output": vectors}


def _padding(call: Call, settings: Settings) -> Iterator[int | None]:
    """Yield padding indices to try: none, and the only id whose vectors are all zero."""
    yield None
    ids = call.inputs[0].astype(np.int64)
    zero = np.unique(ids[~call.output.any(-1)])
    if len(zero) == 1:
        yield int(zero[0])


def _scales(call: Call, settings: Settings) -> Iterator[float]:
    yield 1.0
    yield math.sqrt(call.parameters["weight"].shape[1])
    unscaled = _embedding(call, settings["ids"], settings["padding_idx"], 1.0)["output"]
    yield from solve.scale(unscaled, call.output)


EMBEDDING = Formula(
    _embedding,
    (
        Trait("ids", "embedding.ids", choices(*OFFSETS, CLIPPED)),
        Trait("padding_idx", "embedding.padding_idx", _padding),
        Trait("scale", "embedding.scale", _scales),
    ),
    _check_embedding,
)
