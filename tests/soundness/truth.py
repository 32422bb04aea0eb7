"""Whether the table's truths are true: both sides of a row run by a short loop of their own, with the same weights.

`python truth.py torch FOLDER NAME...` writes weights, and what the row computes, to FOLDER; `python truth.py keras`
loads these weights by the names of the layers, which are equal on both sides, and writes the same. Nothing of the
project but the table and its inputs has a part in this: neither the mapping of weights nor the verdicts.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rows import HERE, Row, pair
from table import ROWS

from parity.pairs.inputs import PairData

PRECISIONS = ("float64", "float32")
Arrays = dict[str, np.ndarray]


def main() -> None:
    side, folder, *names = sys.argv[1:]
    sys.path.insert(0, str(HERE))
    run = importlib.import_module(f"truth_{side}").run
    for row in ROWS:
        if not names or row.name in names:
            for precision in PRECISIONS:
                np.savez(Path(folder) / f"{side}-{precision}-{row.name}.npz", **_ran(run, row, Path(folder), precision))


def _ran(run: Any, row: Row, folder: Path, precision: str) -> Arrays:
    file = pair(row, folder)
    weights = folder / f"weights-{row.name}.npz"
    try:
        return dict(run(file.case, PairData(file.case, file.search), weights, precision))
    except Exception as error:  # told with the row's name by the comparison
        return {"error": np.array(f"{type(error).__name__}: {error}"[:200])}


def apart(reference: Arrays, candidate: Arrays) -> tuple[float, str]:
    """The largest relative distance of two elements, and in which tensor. A tensor's own zero is 1e-13 of its scale."""
    if errors := [str(side["error"]) for side in (reference, candidate) if "error" in side]:
        return np.inf, errors[0]
    if reference.keys() != candidate.keys():
        return np.inf, f"only on one side: {sorted(reference.keys() ^ candidate.keys())}"
    return max(((_distance(reference[key], candidate[key]), key) for key in reference), default=(0.0, ""))


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return np.inf
    with np.errstate(all="ignore"):
        one, other = one.astype(np.float64), other.astype(np.float64)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        size = np.maximum(abs(one), abs(other))
        finite = size[np.isfinite(size)]
        distance = np.where(same, 0.0, abs(one - other) / size)
    return float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0)) if finite.size else 0.0


def large(reference: Arrays, candidate: Arrays) -> float:
    """The largest distance, relative to the largest value of its tensor."""
    found = [0.0]
    for key in reference.keys() & candidate.keys() - {"error"}:
        one, other = reference[key].astype(np.float64), candidate[key].astype(np.float64)
        with np.errstate(all="ignore"):
            distance, scale = abs(one - other), abs(one)
            scale = scale[np.isfinite(scale)].max(initial=0.0)
            found.append(float(np.nan_to_num(distance).max(initial=0.0) / scale) if scale else 0.0)
    return max(found)


def read(folder: Path, name: str, precision: str) -> Iterator[Arrays]:
    for side in ("torch", "keras"):
        with np.load(folder / f"{side}-{precision}-{name}.npz") as arrays:
            yield dict(arrays)


if __name__ == "__main__":
    main()
