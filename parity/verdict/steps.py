"""One recorded step of two traces, with each tensor in all runs of both; and where and how two tensors differ."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.results import Side
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import comparable
from parity.trace.summary import Summary, shape
from parity.trace.tensorfile import blocks, equal
from parity.verdict.kernel import Runs
from parity.verdict.stream import BLOCK, Change


class Step(NamedTuple):
    """The tensors of one replica in one step, by run, in the order of kernel.Runs; the witness is the reference's."""

    reference_high: Tensors
    candidate_high: Tensors
    reference_low: Tensors
    candidate_low: Tensors
    witness: Tensors | None
    # The tensors that changed when the reference's high run was repeated, with their largest difference.
    moved: Mapping[str, float] = {}

    @property
    def highs(self) -> tuple[Tensors, Tensors]:
        """High runs (float64) of the reference and of the candidate."""
        return self.reference_high, self.candidate_high

    @property
    def lows(self) -> tuple[Tensors, Tensors]:
        """Low runs (the run precision) of the reference and of the candidate."""
        return self.reference_low, self.candidate_low

    def runs(self, key: str) -> Runs:
        """Return one tensor in every run."""
        return Runs(*self._arrays(key))

    def changes(self, key: str, before: "Step") -> Runs:
        """Return the change of one tensor since an earlier step, in every run that has it in both steps."""
        pairs = zip(self._arrays(key), before._arrays(key), strict=True)
        changes = [None if now is None or then is None else Change(now, then) for now, then in pairs]
        return Runs(*changes)  # type: ignore[arg-type]  # the high runs have it

    def _arrays(self, key: str) -> tuple[Array, Array, Array | None, Array | None, Array | None]:
        """Return the tensor in each run that has it; the witness's only if it has the same shape."""
        high = self.reference_high[key]
        witness = (self.witness or {}).get(key)
        if witness is not None and shape(witness) != shape(high):
            witness = None
        return high, self.candidate_high[key], self.reference_low.get(key), self.candidate_low.get(key), witness

    def in_order(self) -> list[str]:
        """Return all keys in order, a candidate's own behind its predecessor; without aliases of a key in every run."""
        merged = list(self.reference_high)
        for file in self[1:4]:
            known, place = set(merged), 0
            for key in file or ():
                if key not in known:
                    merged.insert(place, key)
                elif merged[place : place + 1] != [key]:  # checked first: `index` on thousands of keys takes seconds
                    place = merged.index(key)
                place += 1
        again = dict(set.intersection(*(_aliases(file or {}) for file in self[:4])))
        return [key for key in merged if key not in again]

    def holds(self, key: str, shape: tuple[int, ...]) -> bool:
        """Return whether the high and low runs of both sides have a tensor, with this shape."""
        return all(key in file and file[key].shape == shape for file in self[:4])

    def repeats(self, key: str, other: "Step") -> bool:
        """Return whether a tensor is bitwise equal to that of another replica in every run."""
        for mine, theirs in zip(self[:5], other[:5], strict=True):
            if (mine is None) != (theirs is None) or (mine and theirs and not _identical(key, mine, theirs)):
                return False
        return True

    def mismatch(self, key: str, names: tuple[str, str]) -> str:
        """Return why a tensor cannot be compared, or "". Raises TraceError if only one of the traces holds it whole."""
        for reference, candidate, runs in ((self[0], self[1], "float64"), (self[2], self[3], "low")):
            have = [name for name, file in zip(names, (reference, candidate), strict=True) if key in file]
            if len(have) == 1:
                return f"only {have[0]} has this tensor"
            if not have:
                return f"the {runs} runs do not have this tensor, the others do"
            left, right = reference[key], candidate[key]
            if shape(left) != shape(right):
                return f"{names[0]} has the shape {shape(left)}, {names[1]} {shape(right)}"
            if isinstance(left, Summary) != isinstance(right, Summary):
                raise TraceError(f"one trace holds {key} whole, the other a summary of it; record both alike")
            # Inputs of equal values may differ in dtype: Keras casts integer ids for an unbuilt Sequential to floats.
            if _class(left) != _class(right) and not (key.startswith("input/") and equal(left, right)):
                return f"{names[0]} has the dtype {left.dtype}, {names[1]} {right.dtype}"
        high, low = shape(self.reference_high[key]), shape(self.reference_low[key])
        return "" if high == low else f"the low runs have the shape {low}, the others {high}"


class StepTensor(NamedTuple):
    """One tensor of a replica's step, or the update of a parameter, in all runs."""

    step: int | None
    replica: int
    kind: str
    name: str
    files: Step

    @property
    def key(self) -> str:
        return keys.key(self.kind, self.name)


def steps(reference: Trace, candidate: Trace) -> Iterator[tuple[int | None, list[Step]]]:
    """Yield every step that either trace has, with a `Step` for each replica; None is the state before the first."""
    witness = reference if "witness" in reference.manifest.runs else None
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    for stem in dict.fromkeys([*reference.stems("high"), *candidate.stems("high")]):
        yield (
            keys.step_of(stem),
            [
                Step(
                    _compared(reference.open("high", stem, replica), is_comparable),
                    _compared(candidate.open("high", stem, replica)),
                    _compared(reference.open("low", stem, replica), is_comparable),
                    _compared(candidate.open("low", stem, replica)),
                    witness.open("witness", stem, replica) if witness else None,
                    reference.moved(stem, replica),
                )
                for replica in range(min(reference.replicas, candidate.replicas))
            ],
        )


def _compared(tensors: Tensors, is_comparable: Callable[[str], bool] = lambda key: True) -> Tensors:
    return {key: array for key, array in tensors.items() if not key.endswith(keys.EVIDENCE) and is_comparable(key)}


def is_whole(array: Array) -> bool:
    """Return whether an array holds integers or booleans, for which there is no rounding."""
    return _class(array) != "float"


def _identical(key: str, left: Tensors, right: Tensors) -> bool:
    if (key in left) != (key in right):
        return False
    if key not in left or left[key] is right[key]:
        return True
    mine, theirs = left[key], right[key]
    if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
        return False
    return all(left.tobytes() == right.tobytes() for left, right in blocks(mine, theirs))


def _aliases(file: Tensors) -> set[tuple[str, str]]:
    """Return the pairs of a key and an earlier key that have the same array object."""
    first: dict[int, str] = {}
    pairs = ((key, first.setdefault(id(array), key)) for key, array in file.items())
    return {(key, earlier) for key, earlier in pairs if key != earlier}


def _class(array: Array) -> str:
    """Return "float", "int" or "bool"; these must agree, while precisions may differ (mixed precision)."""
    if array.dtype == np.bool_:
        return "bool"
    return "int" if np.issubdtype(array.dtype, np.integer) else "float"


def furthest(left: Array, right: Array, *, magnitude: float) -> list[int]:
    """Return where two arrays of one shape differ most, among elements up to `magnitude`; NaN counts as infinite."""
    largest, position, start = -1.0, 0, 0
    for parts in blocks(left, right, size=BLOCK):
        a, b = (part.astype(np.float64) for part in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            same |= np.fmax(np.abs(a), np.abs(b)) > magnitude
            apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))
        if apart.max() > largest:
            largest, position = float(apart.max()), start + int(apart.argmax())
        start += len(a)
    return [int(i) for i in np.unravel_index(position, left.shape)] if left.size else []


def describe(array: Array, index: list[int] | None) -> Side:
    """Return shape and dtype, minimum, maximum and mean of the finite values, and the value at `index`."""
    side = Side(shape=list(array.shape), dtype=str(array.dtype))
    smallest, largest, total, count = np.inf, -np.inf, 0.0, 0
    for (part,) in blocks(array, size=BLOCK):
        block = part.astype(np.float64)
        block = block[np.isfinite(block)]
        if block.size:
            smallest, largest = min(smallest, float(block.min())), max(largest, float(block.max()))
            total, count = total + float(block.sum()), count + block.size
    if count:
        side.smallest, side.largest, side.mean = smallest, largest, total / count
    value = float(array[tuple(index)]) if index is not None and array.size else np.nan
    side.value = value if np.isfinite(value) else None
    return side
