"""What the two models of each row compute where their users run them. Nothing of the project has a part in this.

`python users_truth.py torch FOLDER [NAMES]` builds each row's model, writes its weights, runs it as a user of torch
does, and writes what it computes; `python users_truth.py keras FOLDER [NAMES]` loads these weights by the row's
correspondence, and does the same in Keras.
"""

import importlib
import itertools
import sys
import traceback
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from users_rows import HERE, Arrays, Row
from users_table import ROWS

DRAWS = 20  # builds of a model whose tables are random


def main() -> None:
    side, folder, *names = sys.argv[1:]
    run = importlib.import_module(f"users_truth_{side}").run
    for row in ROWS:
        if not names or row.name in names:
            np.savez(Path(folder) / f"{side}-{row.name}.npz", **_ran(run, row, Path(folder)))


def _ran(run: Any, row: Row, folder: Path) -> Arrays:
    try:
        return {name: np.asarray(values) for name, values in run(row, folder)}
    except Exception as error:  # shown with the row's name by the comparison
        traceback.print_exc()
        return {"error": np.array(f"{type(error).__name__}: {error}"[:300])}


def fresh(row: Row, side: str) -> Any:
    """The module of a row's builders, as a process of its own would import it: no global holds another run's values."""
    for name, module in list(sys.modules.items()):
        is_model = name.endswith(f"_{side}") and not name.startswith("users_")
        if is_model and Path(module.__file__).parent == HERE:
            del sys.modules[name]
    return importlib.import_module(f"{row.theme}_{side}")


def inputs(row: Row, step: int) -> Arrays:
    """What goes into the model in one step. Where masks are looked at, the same in every step."""
    return {name: _drawn(row, name, 0 if row.masks else step) for name in row.inputs if name not in BESIDE}


BESIDE = ("target", "sample_weight")


def beside(row: Row, step: int, shape: tuple[int, ...]) -> Arrays:
    """What goes to the loss: a target, of the output's shape if the row does not describe one, and weights."""
    fields = {"target": {"shape": list(shape), "dtype": "float32"}} | row.inputs
    return {name: _drawn(row, name, step, fields[name]) for name in BESIDE if name in fields}


def _drawn(row: Row, name: str, step: int, fields: dict[str, Any] | None = None) -> np.ndarray:
    fields = fields or row.inputs[name]
    generator = np.random.default_rng(zlib.crc32(f"{row.name} {name} {step}".encode()))
    shape = [length + step * (row.grows and axis == 1) for axis, length in enumerate(fields["shape"])]
    if fields["dtype"].startswith("float"):
        return generator.normal(size=shape) * fields.get("scale", 1.0)
    return generator.integers(*fields.get("range", (0, 2)), size=shape).astype(fields["dtype"])


def rate(row: Row) -> float:
    """The learning rate; where masks are looked at, weights stay what they are."""
    return 0.0 if row.masks else row.train["learning_rate"]


def of_masks(outputs: list[np.ndarray], evaluated: list[np.ndarray]) -> Iterator[tuple[str, Any]]:
    """Which maskings are equal, and how much they mask: `outputs` of the steps, and two calls in evaluation."""
    parts = [
        (step, place, part) for step, output in enumerate(outputs) for place, part in enumerate(output.swapaxes(0, 1))
    ]
    for (step, place, part), (later, beyond, candidate) in itertools.combinations(parts, 2):
        key = f"{step}.{place} {later}.{beyond}"
        yield f"equal {key}", np.array_equal(part, candidate)
        zeros, others = part == 0, candidate == 0
        yield f"within {key}", zeros.any() and others.any() and bool((others[zeros]).all() or (zeros[others]).all())
    yield "share", np.mean([output == 0 for output in outputs])
    yield "equal evaluated", np.array_equal(*evaluated)
    if np.array_equal(*evaluated):
        yield "evaluated", evaluated[0]


def moments(draws: Iterable[np.ndarray]) -> np.ndarray:
    """Of a random table's values, over several builds: mean, deviation and kurtosis."""
    values = np.concatenate([each.ravel() for each in draws])
    deviation = values.std()
    return np.array([values.mean() / deviation, deviation, ((values - values.mean()) ** 4).mean() / deviation**4])


class Apart(NamedTuple):
    """How far two sides are apart, relative to the largest value of a tensor: before training, and in what it does."""

    before: float
    after: float
    where: str
    error: str = ""


def apart(reference: Arrays, candidate: Arrays) -> Apart:
    """Compare what both sides have: steps of a user's own do not show their outputs."""
    if errors := [str(side["error"]) for side in (reference, candidate) if "error" in side]:
        return Apart(np.inf, np.inf, "", errors[0])
    found = {key: _distance(key, reference[key], candidate[key]) for key in reference.keys() & candidate.keys()}
    before = found.pop("before", 0.0)
    where = max(found, key=lambda key: found[key])
    return Apart(before, found[where], where)


def _distance(key: str, one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return np.inf
    if key == "moments":  # of some hundred draws
        return 0.0 if (abs(one - other) <= (0.25, 0.2 * one[1], 0.3 * one[2])).all() else 1.0
    if key == "share":  # of some hundred elements
        return float(abs(one - other) > 0.125)
    if one.dtype.kind in "bi":
        return float((one != other).any())
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    size = max(abs(np.nan_to_num(each)).max(initial=0.0) for each in (one, other))
    distance = np.where(same, 0.0, abs(one - other) / (size or 1.0))
    return float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0))


if __name__ == "__main__":
    main()
