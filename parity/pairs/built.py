"""The values that both builders gave to tensors that are not trained: tables, masks and constants of the computation.

A weight is given torch's values. A table that a model computes is part of the model: if both sides' differ, that is a
difference of the models. How much the run precision rounds is measured: torch's builder ran at that precision too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity.core.arrays import Array, Floats
from parity.pairs.transfer import to_keras
from parity.trace import survey
from parity.trace.mapping import Entry, Unlike
from parity.trace.tensorfile import TensorFile

Values = Mapping[str, Array]
LARGEST = float(np.finfo(np.float32).max)  # what masks hold that are as low as their precision goes
RELATIVE = 2.0**-22
DRAWN = 2.0**-6  # more than this part of the largest value is not lost by rounding: it is drawn at each precision
ROUNDINGS = 8  # how many times torch's own rounding another order of the same operations may leave


class Built(NamedTuple):
    """Values by name; `rounded` are torch's as built at the run precision."""

    torch: Values = {}
    rounded: Values = {}
    keras: Values = {}

    def has(self, entry: Entry) -> bool:
        """Return whether both builders gave values to all tensors of an entry."""
        return all(name in self.rounded for name in entry.torch) and all(name in self.keras for name in entry.keras)

    def same(self, entry: Entry) -> bool:
        """Return whether both builders gave the same values; one number everywhere, which is no evidence, is not."""
        return self.has(entry) and not self.is_flat(entry) and self.unlike(entry) is None

    def is_flat(self, entry: Entry) -> bool:
        """Return whether Keras's variables hold one number each."""
        return all(bool((array == array.flat[0]).all()) for array in self._keras(entry) if array.size)

    def is_unfilled(self, entry: Entry) -> bool:
        """Return whether Keras's variables hold nothing but 0 or nothing but 1, as initializers leave them."""
        return self.is_flat(entry) and all(array.flat[0] in (0, 1) for array in self._keras(entry) if array.size)

    def unlike(self, entry: Entry) -> Unlike | None:
        """Return how the builders' values differ; None where it is no more than the run precision rounds."""
        theirs = self._keras(entry)
        shapes = [array.shape for array in theirs]
        torch, rounded = (
            _flat(to_keras(entry, [np.asarray(values[name]) for name in entry.torch], shapes))
            for values in ({**self.rounded, **self.torch}, self.rounded)
        )
        keras = _flat(theirs)
        if _is_rounding(torch, rounded, keras):
            return None
        apart = _distance(torch, keras)
        place = int(np.argmax(apart))
        sides = _summary(torch, place), _summary(keras, place)
        names = f"{', '.join(entry.torch)} of torch ({sides[0]}) and {', '.join(entry.keras)} of keras ({sides[1]})"
        said = f"{names} differ as their builders make them, by up to {apart[place]:.3g}"
        return Unlike(torch=sides[0], keras=sides[1], said=said, entry=entry)

    def _keras(self, entry: Entry) -> list[Array]:
        return [np.asarray(self.keras[name]) for name in entry.keras]


def read(torch: Path, keras: Path) -> Built:
    """Return the values that the builders of two surveyed models gave, from the folders of the surveys.

    Raises TraceError.
    """
    rounded = survey.built(torch)
    exact = {name: array for name, array in TensorFile(torch / survey.WEIGHTS).items() if name in rounded}
    frozen = {weight.name for weight in survey.read(torch).weights if not weight.constant}
    # What torch trains starts from values of the run precision; a frozen one that is constant is changed there.
    return Built({name: array for name, array in exact.items() if name not in frozen}, rounded, survey.built(keras))


def moved(before: Values, after: Values) -> set[str]:
    """Return the names of what is not the same in both: drawn at random, where only the seed is another."""
    return {name for name, array in before.items() if name in after and not _equal(array, after[name])}


def _equal(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _flat(arrays: Sequence[Array]) -> Floats:
    """Return all values in one array of float64, with masks at most as low as float32 goes."""
    whole = np.concatenate([array.astype(np.float64).reshape(-1) for array in arrays])
    finite = np.isfinite(whole)
    return np.where(finite, np.clip(whole, -LARGEST, LARGEST), whole)


def _is_rounding(torch: Floats, rounded: Floats, keras: Floats) -> bool:
    """Return whether no element differs by more than elements of its size, or smaller, lose at the run precision."""
    order = np.argsort(np.abs(torch), kind="stable")
    lost, noise = _distance(torch, rounded), np.zeros_like(torch)
    if _largest(lost) <= DRAWN * _largest(np.abs(torch)):
        noise[order] = np.maximum.accumulate(lost[order])
    apart = _distance(torch, keras)
    return bool((apart <= RELATIVE * np.abs(np.nan_to_num(torch)) + ROUNDINGS * noise).all())


def _distance(one: Floats, other: Floats) -> Floats:
    """Return how far apart elements are: 0 where they are the same, infinite where one of them is not finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _largest(values: Floats) -> float:
    return float(values.max(initial=0.0))


def _summary(values: Floats, place: int) -> str:
    """Return the range of values, and the value at a position, as text."""
    low, high = (float(end) for end in (values.min(), values.max()))
    here = f"{values[place]:.6g}"
    return here if low == high else f"min {low:.6g}, max {high:.6g}, at [{place}] {here}"
