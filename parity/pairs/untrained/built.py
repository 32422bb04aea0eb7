"""The values that both builders gave to tensors that are not trained: tables, masks and constants of the computation.

A weight is given torch's values. A table that a model computes is part of the model: if both sides' differ, that is a
difference of the models. How much the run precision rounds is measured: torch's builder ran at that precision too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity.core.arrays import Array, Floats
from parity.pairs.weights.transfer import to_keras
from parity.runtime import survey
from parity.trace.mapping import Entry, Unlike

Values = Mapping[str, Array]
LARGEST = float(np.finfo(np.float32).max)  # what masks hold that are as low as their precision goes
RELATIVE = 2.0**-22
DRAWN = 2.0**-6  # more than this part of the largest value is not lost by rounding: it is drawn at each precision
# A float32 sum of n terms is off by about sqrt(n) roundings of 2^-24 of their size (by n only if all err to one side),
# and the mean of n other samples by 1 / sqrt(n) of the deviation. For 2^16 terms that is 2^-16 and 2^-8: within both it
# is rounding, also of a mean so far from 0 that the first alone would pass other data. A variance by n - 1 for n
# differs by 1 / n, and is told from rounding up to 2^16 terms.
SUMMED, SAMPLED = 2.0**-16, 2.0**-8
ROUNDINGS = 8  # how many times torch's own rounding another order of the same operations may leave


class Statistics(NamedTuple):
    """How many deviations two means, and how many of themselves two variances are `apart`, and which are the same."""

    apart: float
    mean: bool
    variance: bool

    @classmethod
    def of(cls, ours: Sequence[Floats], theirs: Sequence[Floats]) -> "Statistics":
        """Compare each side's mean and variance, which are the same where float32 sums lose what they differ by."""
        (mean, variance), (other, squares) = ours, theirs
        lost = np.minimum(SUMMED * np.sqrt(other**2 + squares), SAMPLED * np.sqrt(squares))
        parts = _distance(mean, other), _distance(variance, squares)
        with np.errstate(all="ignore"):
            apart = np.nan_to_num(np.concatenate([parts[0] / np.sqrt(squares), parts[1] / squares]), posinf=np.inf)
        return cls(apart.max(initial=0), bool((parts[0] <= lost).all()), bool((parts[1] <= SUMMED * squares).all()))


class Built(NamedTuple):
    """Values by name; `torch` are those of torch's builder in float64, `rounded` at the run precision."""

    torch: Values = {}
    rounded: Values = {}
    keras: Values = {}

    def has(self, entry: Entry) -> bool:
        """Return whether both builders gave values to all tensors of an entry."""
        return all(name in self.rounded for name in entry.torch) and all(name in self.keras for name in entry.keras)

    def same(self, entry: Entry, part: float = 1.0) -> bool:
        """Return whether both builders gave the same values, or to this part of the elements.

        The number that most elements have is no evidence, as zeros of a mask.
        """
        if not self.has(entry) or self.is_flat(entry):
            return False
        torch, rounded, keras = self._values(entry, ())
        numbers, counts = np.unique(torch, return_counts=True)
        telling = torch != numbers[counts.argmax()]
        equal = ~_differing(torch, rounded, keras)
        return bool(equal.all() if part == 1 else telling.any() and equal[telling].mean() >= part)

    def statistics(self, mean: Entry, variance: Entry) -> "Statistics | None":
        """Compare the means and variances that two entries hold on both sides; None without all values."""
        if not (self.has(mean) and self.has(variance)):
            return None
        (_, ours, theirs), (_, own, squares) = self._values(mean, ()), self._values(variance, ())
        return Statistics.of((ours, own), (theirs, squares))

    def pooled(self, torch: Sequence[str], keras: Sequence[str]) -> list[int]:
        """Return of how many features each side has a mean, if one has that of all features of the other's; else none.

        `torch`, `keras`: the names of a mean and of a variance, which in torch may be a deviation.
        """
        mean, spread = (finite(self.rounded[name]).reshape(-1) for name in torch)
        theirs = [finite(self.keras[name]).reshape(-1) for name in keras]
        for ours in ([mean, spread], [mean, spread**2]):
            whole, (means, variances) = sorted((ours, theirs), key=lambda side: side[0].size)
            is_of_all = whole[0].size == whole[1].size == 1 < means.size == variances.size
            together = means.mean(), variances.mean() + means.var()
            if is_of_all and all(Statistics.of(whole, [np.atleast_1d(each) for each in together])[1:]):
                return [mean.size, theirs[0].size]
        return []

    def is_flat(self, entry: Entry) -> bool:
        """Return whether Keras's variables hold one number each."""
        return all(bool((array == array.flat[0]).all()) for array in self._keras(entry) if array.size)

    def is_unfilled(self, entry: Entry) -> bool:
        """Return whether Keras's variables hold nothing but 0 or nothing but 1, as initializers leave them."""
        return self.is_flat(entry) and all(array.flat[0] in (0, 1) for array in self._keras(entry) if array.size)

    def unlike(self, entry: Entry, random: Sequence[Array] = ()) -> Unlike | None:
        """Return how the builders' values differ by more than rounding, but for the `random` elements; else None."""
        torch, rounded, keras = self._values(entry, random)
        if not _differing(torch, rounded, keras).any():
            return None
        apart = _distance(torch, keras)
        place = int(np.argmax(apart))
        sides = _summary(torch, place), _summary(keras, place)
        what = "the square of " * (entry.combine == "square") + ", ".join(entry.torch)
        names = f"{what} of torch ({sides[0]}) and {', '.join(entry.keras)} of keras ({sides[1]})"
        said = f"{names} differ as their builders make them, by up to {apart[place]:.3g}"
        return Unlike(torch=sides[0], keras=sides[1], said=said, entry=entry)

    def differing(self, entry: Entry, random: Sequence[Array]) -> list[Array]:
        """Return for each of Keras's variables which elements differ so, those aside that are random."""
        flat, ends = _differing(*self._values(entry, random)), np.cumsum([mask.size for mask in random])
        return [part.reshape(mask.shape) for part, mask in zip(np.split(flat, ends[:-1]), random, strict=True)]

    def _values(self, entry: Entry, random: Sequence[Array]) -> tuple[Floats, Floats, Floats]:
        """Return torch's values, as built at the run precision too, and Keras's, with zeros where they are random."""
        theirs = self._keras(entry)
        shapes = [array.shape for array in theirs]
        torch, rounded = (
            _flat(to_keras(entry, [np.asarray(values[name]) for name in entry.torch], shapes))
            for values in (self.torch, self.rounded)
        )
        computed = ~np.concatenate([mask.reshape(-1) for mask in random]) if random else np.ones(torch.shape, bool)
        kept = (np.where(computed, values, 0) for values in (torch, rounded, _flat(theirs)))
        return next(kept), next(kept), next(kept)

    def _keras(self, entry: Entry) -> list[Array]:
        return [np.asarray(self.keras[name]) for name in entry.keras]


def read(torch: Path, keras: Path) -> Built:
    """Return the values that two models' builders gave, from the folders of their surveys. Raises TraceError."""
    return Built(survey.built(torch, survey.EXACT), survey.built(torch), survey.built(keras))


def finite(array: Array) -> Floats:
    """Return an array as float64, with what is not finite, or lower than masks of float32 go, at float32's ends."""
    return np.nan_to_num(np.clip(array.astype(np.float64), -LARGEST, LARGEST), nan=LARGEST)


def _flat(arrays: Sequence[Array]) -> Floats:
    """Return all values in one array of float64, with masks at most as low as float32 goes."""
    whole = np.concatenate([array.astype(np.float64).reshape(-1) for array in arrays])
    return np.where(np.isfinite(whole), np.clip(whole, -LARGEST, LARGEST), whole)


def _differing(torch: Floats, rounded: Floats, keras: Floats) -> Array:
    """Return which elements differ by more than elements of their size, or smaller, lose at the run precision."""
    order = np.argsort(np.abs(torch), kind="stable")
    lost, noise = _distance(torch, rounded), np.zeros_like(torch)
    if np.isfinite(lost).all() and lost.max(initial=0.0) <= DRAWN * np.abs(torch).max(initial=0.0):
        noise[order] = np.maximum.accumulate(lost[order])
    return _distance(torch, keras) > RELATIVE * np.abs(np.nan_to_num(torch)) + ROUNDINGS * noise


def _distance(one: Floats, other: Floats) -> Floats:
    """Return how far apart elements are: 0 where they are the same, infinite where one of them is not finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _summary(values: Floats, place: int) -> str:
    """Return the range of values, and the value at a position, as text."""
    low, high = (float(end) for end in (values.min(), values.max()))
    here = f"{values[place]:z.6g}"
    return here if low == high else f"min {low:z.6g}, max {high:z.6g}, at [{place}] {here}"
