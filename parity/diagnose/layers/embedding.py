"""Causes in embeddings: other rows than the ids name, a scale, a row that is kept at zero."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices
from parity.diagnose.layers.evidence import output
from parity.diagnose.observation import Call

OFFSETS: Final = {"as given": 0, "one too many": 1, "one too few": -1}
CLIPPED: Final = "clipped to the table"


def _predict(call: Call, ids: str, padding_idx: int | None, scale: float) -> dict[str, Array]:
    table = call.parameters["weight"]
    rows = call.inputs[0].astype(np.int64) + OFFSETS.get(ids, 0)
    if ids == CLIPPED:
        rows = rows.clip(0, len(table) - 1)
    if rows.size and not 0 <= rows.min() <= rows.max() < len(table):
        return {}
    vectors = table[rows] * scale
    vectors[rows == padding_idx] = 0.0
    return {"output": vectors}


def _padding(call: Call, settings: Settings) -> Iterator[int | None]:
    """Yield padding indices to try: none, and the only id whose vectors are all zero."""
    yield None
    ids = call.inputs[0].astype(np.int64)
    zero = np.unique(ids[~output(call).any(-1)])
    if len(zero) == 1:
        yield int(zero[0])


def _scales(call: Call, settings: Settings) -> Iterator[float]:
    yield 1.0
    yield math.sqrt(call.parameters["weight"].shape[1])
    unscaled = _predict(call, settings["ids"], settings["padding_idx"], 1.0).get("output")
    scale = None if unscaled is None else solve.scale(unscaled, output(call))
    if scale is not None:
        yield scale


EMBEDDING = Formula(
    _predict,
    (
        Trait("ids", "embedding.ids", choices(*OFFSETS, CLIPPED)),
        Trait("padding_idx", "embedding.padding_idx", _padding),
        Trait("scale", "embedding.scale", _scales),
    ),
)
