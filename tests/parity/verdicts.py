"""Two traces of known tensors, and the verdict on them."""

from pathlib import Path
from typing import Any

import numpy as np
from synthetic import Fault, Seen, by_hand, record

from parity.core.arrays import Array
from parity.results import CaseResult
from parity.verdict.traces import compare

STEP = "step-000000"
SIGNS = np.where(np.arange(64) % 3, 1.0, -1.0)  # its largest value is 1, its norm 8
ACTIVATION = "activation/layer"


def at(run: str, value: Array) -> Array:
    """A tensor as a run stores it: floats of the low run in float32."""
    return value.astype(np.float32) if run == "low" and value.dtype == np.float64 else value


def tensors(high: dict[str, Array], stem: str = STEP, **runs: dict[str, Array]) -> dict[str, Any]:
    """The runs of one step; a low run that is not given is the high one rounded."""
    given = {"high": high, "low": high, **runs}
    return {run: {stem: {key: at(run, value) for key, value in named.items()}} for run, named in given.items()}


def judged(folder: Path, reference: dict[str, Any], candidate: dict[str, Any], **of: Any) -> CaseResult:
    return compare(by_hand(folder / "torch", reference, "torch", **of), by_hand(folder / "keras", candidate, "keras"))


def one(folder: Path, reference: Array, candidate: Array, key: str = ACTIVATION, **runs: Array) -> CaseResult:
    """The verdict on one tensor; `reference_low`, `candidate_low` and `witness` are its other runs."""
    sides = []
    for side, high in (("reference", reference), ("candidate", candidate)):
        low = runs.get(f"{side}_low", high)
        sides.append(tensors({key: high}, low={key: low}))
    if "witness" in runs:
        sides[0]["witness"] = {STEP: {key: runs["witness"]}}
    return judged(folder, *sides)


def pair(folder: Path, fault: Fault | None = None, **sides: Any) -> CaseResult:
    """The numpy network on both sides, adding in another order; the candidate with a fault."""
    case, centred = sides.pop("case", None), sides.pop("centred", False)
    runs = sides.pop("runs", ("low", "high", "witness"))
    faulty = {**sides, **({"fault": fault} if fault else {})}
    reference = record(folder / "torch", "torch", case, runs, centred=centred)
    candidate = record(folder / "keras", "keras", case, ("low", "high"), backwards=True, centred=centred, **faulty)
    return compare(reference, candidate)


def times(
    factor: float, kind: str, name: str, only: str = "", replica: int | None = None, step: int | None = None
) -> Fault:
    """A tensor is multiplied: in all runs, replicas and steps, or in one."""

    def fault(seen: Seen) -> Array:
        here = (seen.kind, seen.name) == (kind, name) and only in ("", seen.at)
        here &= replica in (None, seen.replica) and step in (None, seen.step)
        return seen.value * seen.value.dtype.type(factor) if here else seen.value

    return fault


def noisy(folder: Path, bits: float, base: float, key: str, stem: str = STEP, back: bool = False) -> CaseResult:
    """The candidate's low run is `bits` noisier than the reference's, whose relative noise is `base`."""
    quiet, loud = SIGNS * (1 + base), SIGNS * (1 + base * 2.0**bits)
    lows = (loud, quiet) if back else (quiet, loud)
    return judged(folder, *(tensors({key: SIGNS}, stem, low={key: low}) for low in lows))


def spoilt(*places: int, value: float = np.nan) -> Array:
    array = SIGNS.copy()
    array[list(places)] = value
    return array
