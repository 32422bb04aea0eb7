"""One recorded step of two traces: the same tensor in all runs of both."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from parity.numerics.kernel import Array, Change, Runs
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.tensorfile import TensorFile


class Step(NamedTuple):
    """The files of every run, in the order of kernel.Runs. The witness is the reference's own."""

    reference_high: TensorFile
    candidate_high: TensorFile
    reference_low: TensorFile
    candidate_low: TensorFile
    witness: TensorFile | None

    def runs(self, key: str) -> Runs:
        """One tensor in every run."""
        high, low = self[:2], self[2:]
        return Runs(*(file[key] for file in high), *(None if file is None else file[key] for file in low))

    def changes(self, key: str, before: "Step") -> Runs:
        """What became of one tensor since an earlier step."""
        high = [Change(now[key], then[key]) for now, then in zip(self[:2], before[:2], strict=True)]
        low = [
            Change(now[key], then[key]) if now is not None and then is not None else None
            for now, then in zip(self[2:], before[2:], strict=True)
        ]
        return Runs(*high, *low)

    def in_order(self) -> list[str]:
        """Every key in execution order; what the candidate alone has follows its predecessor there."""
        merged = list(self.reference_high)
        known, place = set(merged), 0
        for key in self.candidate_high:
            if key in known:
                place = merged.index(key) + 1
            else:
                merged.insert(place, key)
                place += 1
        return merged

    def mismatch(self, key: str, names: tuple[str, str]) -> str:
        """Why a tensor cannot be compared value by value, or ""."""
        for reference, candidate in ((self[0], self[1]), (self[2], self[3])):
            have = [name for name, file in zip(names, (reference, candidate), strict=True) if key in file]
            if len(have) == 1:
                return f"only {have[0]} has this tensor"
            if not have:
                return "the float64 runs have this tensor, the low runs do not"
            one, other = reference[key], candidate[key]
            if one.shape != other.shape:
                return f"{names[0]} has the shape {one.shape}, {names[1]} {other.shape}"
            if _class(one) != _class(other):
                return f"{names[0]} has the dtype {one.dtype}, {names[1]} {other.dtype}"
        return ""


def steps(reference: Trace, candidate: Trace) -> Iterator[tuple[int | None, Step]]:
    """Every step that either trace has, opened; the state before the first step has the number None."""
    witness = next((trace for trace in (reference, candidate) if "witness" in trace.manifest.runs), None)
    stems = {stem: None for trace in (reference, candidate) for stem in trace.stems("high")}
    for stem in stems:
        yield (
            keys.step_of(stem),
            Step(
                reference.open("high", stem),
                candidate.open("high", stem),
                reference.open("low", stem),
                candidate.open("low", stem),
                witness.open("witness", stem) if witness else None,
            ),
        )


def _class(array: Array) -> str:
    """float, int or bool: precisions may differ (the casts of mixed precision), meanings may not."""
    if array.dtype == np.bool_:
        return "bool"
    return "int" if np.issubdtype(array.dtype, np.integer) else "float"
