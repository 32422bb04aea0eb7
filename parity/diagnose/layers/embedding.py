"""Causes in embeddings: other rows than the ids name, a scale, a row that is kept at zero."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, NotApplicable, Settings, Trait, choices, require
from parity.diagnose.layers.call import Call
from parity.diagnose.layers.evidence import parameter

OFFSETS: Final = {"as given": 0, "one too many": 1, "one too few": -1}
CLIPPED: Final = "clipped to the table"


def _check(call: Call) -> None:
    parameter(call, "weight", 2)
    require(call.output.shape[:-1] == call.inputs[0].shape and call.output.ndim > 0, "a vector for each id")


def _predict(call: Call, ids: str, padding_idx: int | None, scale: float) -> dict[str, Array]:
    table = call.parameters["weight"]
    rows = call.inputs[0].astype(np.int64) + OFFSETS.get(ids, 0)
    if ids == CLIPPED:
        rows = rows.clip(0, len(table) - 1)
    if rows.size and not 0 <= rows.min() <= rows.max() < len(table):
        raise NotApplicable("needs ids of the table's rows")
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
    unscaled = _predict(call, settings["ids"], settings["padding_idx"], 1.0)["output"]
    scale = solve.scale(unscaled, call.output)
    if scale is not None:
        yield scale


EMBEDDING = Formula(
    _predict,
    (
        Trait("ids", "embedding.ids", choices(*OFFSETS, CLIPPED)),
        Trait("padding_idx", "embedding.padding_idx", _padding),
        Trait("scale", "embedding.scale", _scales),
    ),
    _check,
)
