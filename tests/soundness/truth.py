"""Whether the table's truths are true: both sides of a row run by a short loop of their own, with the same weights.

`python truth.py torch FOLDER NAME...` writes weights, and what the row computes, to FOLDER; `python truth.py keras`
loads these weights by the names of the layers, which are equal on both sides, and writes the same. Nothing of the
project but the table and its inputs has a part in this: neither the mapping of weights nor the verdicts.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rows import HERE, Row, pair
from table import ROWS

from parity.data.pairs import PairData

PRECISIONS = ("float64", "float32")
Arrays = dict[str, np.ndarray]


def main() -> None:
    side, folder, *names = sys.argv[1:]
    sys.path.insert(0, str(HERE))
    run = importlib.import_module(f"truth_{side}").run
    for row in ROWS:
        for precision in PRECISIONS if not names or row.name in names else ():
            np.savez(Path(folder) / f"{side}-{precision}-{row.name}.npz", **_ran(run, row, Path(folder), precision))


def _ran(run: Any, row: Row, folder: Path, precision: str) -> Arrays:
    file = pair(row, folder)
    weights = folder / f"weights-{row.name}.npz"
    try:
        return dict(run(file.case, PairData(file.case, file.search), weights, precision))
    except Exception as error:  # told with the row's name by the comparison
        return {"error": np.array(f"{type(error).__name__}: {error}"[:200])}


class Apart(NamedTuple):
    """How far two sides are apart: `element`: the largest relative distance of two elements; `kind`: the largest
    distance relative to the largest value of all tensors of that kind and step (a gradient may be zero but for
    rounding). `error`: why a side did not run.
    """

    element: float
    kind: float
    where: str
    error: str = ""


def apart(reference: Arrays, candidate: Arrays) -> Apart:
    """What one side alone has is compared with zero."""
    if errors := [str(side["error"]) for side in (reference, candidate) if "error" in side]:
        return Apart(np.inf, np.inf, "", errors[0])
    scales: dict[str, float] = {}
    for key, values in [*reference.items(), *candidate.items()]:
        kind = key.partition(" ")[0]
        scales[kind] = max(scales.get(kind, 0.0), _largest(values))
    found = [_distances(key, reference, candidate, scales) for key in reference.keys() | candidate.keys()]
    element, where = max((each[0], each[2]) for each in found)
    return Apart(element, max(each[1] for each in found), where)


def _distances(key: str, reference: Arrays, candidate: Arrays, scales: dict[str, float]) -> tuple[float, float, str]:
    one, other = (side.get(key, np.zeros(())).astype(np.float64) for side in (reference, candidate))
    if one.shape != other.shape and one.shape and other.shape:
        return np.inf, np.inf, key
    with np.errstate(all="ignore"):
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        distance = np.where(same, 0.0, abs(one - other))
        relative = np.where(same, 0.0, distance / np.maximum(abs(one), abs(other)))
        scaled = distance / scales[key.partition(" ")[0]]
    return _largest(relative, np.inf), _largest(np.where(same, 0.0, scaled), np.inf), key


def _largest(values: np.ndarray, nan: float = 0.0) -> float:
    """Of the finite ones; `nan`: what stands for those that are not."""
    found = abs(np.nan_to_num(values.astype(np.float64), nan=nan, posinf=nan, neginf=nan))
    return float(found.max(initial=0.0))


def read(folder: Path, name: str, precision: str) -> Iterator[Arrays]:
    for side in ("torch", "keras"):
        with np.load(folder / f"{side}-{precision}-{name}.npz") as arrays:
            yield dict(arrays)


if __name__ == "__main__":
    main()
