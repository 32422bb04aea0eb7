"""Tell which tables builders draw at random, in whole or in part, and whether both sides draw them alike.

An element is random if another seed gives it another value, on either side. All others are computed, and compared as
they are. Of the random ones the distributions are compared (parity.pairs.untrained.distributions).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.core.arrays import Floats
from parity.core.wording import agree, count, listed
from parity.pairs.untrained import distributions
from parity.pairs.untrained.built import Built, Values, finite
from parity.pairs.untrained.distributions import Contrast, contrast
from parity.pairs.weights.transfer import to_keras
from parity.runtime.survey import Survey, Weight
from parity.trace.mapping import Entry, Partial, Unlike

Mask = NDArray[np.bool_]
LARGEST = 1 << 22  # numbers of a table that is drawn again and again
DISTRIBUTION = "initialisation.distribution"
USED = "torch's values are used in Keras for"
SHOWN = 4  # at most so many numbers of rows in a sentence


class Draws(NamedTuple):
    """What each side's builder gave with several seeds, by name; the pair's own seed is the first of them."""

    torch: Sequence[Values]
    keras: Sequence[Values]


# Builds both models with so many further seeds, and returns what they give to the named tensors, or to all without any.
Draw = Callable[[int, Sequence[str]], Draws]


def changed(builds: Sequence[Values]) -> dict[str, Mask]:
    """Return of each tensor that is not the same in all builds which elements are not."""
    names = [name for name in builds[0] if all(name in build for build in builds)]
    masks = {name: _differing(finite(build[name]) for build in builds) for name in names}
    return {name: mask for name, mask in masks.items() if mask.any()}


class RandomTable:
    """An entry's tensors, random in the elements of Keras's variables that `masks` hold, on either side."""

    def __init__(self, entry: Entry, draws: Draws) -> None:
        self.entry, self.draws = entry, draws
        self.masks = [np.logical_or(*map(_differing, self._drawn(number))) for number in range(len(entry.keras))]

    def unlike(self, tables: int) -> Unlike | None:
        """Return how the distributions differ, or None. `tables`: how many tables of the pair are compared."""
        where, apart = self._contrast(tables)
        if not apart:
            return None
        drawn = f"{self._parts('torch')} in torch and {self._parts('keras')} in keras"
        numbers = f"{where}{apart.torch} in torch and {apart.keras} in keras"
        said = f"random are {drawn}, and not drawn alike: over {count(len(self.draws.keras), 'seed')}, {numbers}"
        sides = {"torch": where + apart.torch, "keras": where + apart.keras}
        return Unlike(**sides, said=said, entry=self.entry, cause=DISTRIBUTION)

    def scaled(self, tables: int) -> Partial | None:
        """Return what loads torch's random values at Keras's scale, if both are drawn alike but for that; else None."""
        sizes = [0.0, 0.0]
        for number, mask in enumerate(self.masks):
            for side, builds in enumerate(self._drawn(number)):
                sizes[side] += sum(float(np.square(build[mask]).sum()) for build in builds)
        if not all(sizes):
            return None
        factor = math.sqrt(sizes[1] / sizes[0])
        if self._contrast(tables, factor)[1]:
            return None
        runs = dict(zip(self.entry.keras, map(_runs, self.masks), strict=True))
        return Partial(entry=self.entry, runs=runs, factor=factor)

    def alike(self) -> str:
        """Say that torch's values are used where both sides draw alike."""
        has_rest = not all(mask.all() for mask in self.masks)
        rest = "; the rest is computed on each side and compared" if has_rest else ""
        seeds = count(len(self.draws.keras), "seed")
        return f"{USED} {self._parts('torch')}, random on both sides and drawn alike ({seeds}){rest}"

    def partial(self, built: Built) -> Partial:
        """Return what loads torch's values except where both sides compute other values."""
        runs = [_runs(~mask) for mask in built.differing(self.entry, self.masks)]
        return Partial(entry=self.entry, runs=dict(zip(self.entry.keras, runs, strict=True)))

    def _contrast(self, tables: int, factor: float = 1.0) -> tuple[str, Contrast | None]:
        """Return how torch's random values, times a factor, differ from Keras's, and in which slice or element.

        Slices without any random element are left out, and what else is computed is 0 on both sides.
        """
        for number, mask in enumerate(self.masks):
            kept = [np.flatnonzero(mask.any(_others(axis, mask))) for axis in range(mask.ndim)]
            ours, theirs = (
                (np.where(mask, build, 0)[np.ix_(*kept)] for build in builds) for builds in self._drawn(number, factor)
            )
            if apart := contrast(ours, theirs, tables):
                return _where(kept, apart), apart
        return "", None

    def _parts(self, side: str) -> str:
        """Name what a side draws at random."""
        builds = [{name: build[name] for name in getattr(self.entry, side)} for build in getattr(self.draws, side)]
        return " and ".join(_part(name, mask) for name, mask in changed(builds).items()) or "nothing"

    def _drawn(self, number: int, factor: float = 1.0) -> tuple[Iterator[Floats], Iterator[Floats]]:
        """Return a Keras variable's values in each build: torch's, times a factor, in its form, and its own."""
        shapes = [self.draws.keras[0][name].shape for name in self.entry.keras]
        torch = ([finite(build[name]) for name in self.entry.torch] for build in self.draws.torch)
        keras = (finite(build[self.entry.keras[number]]) for build in self.draws.keras)
        return (factor * to_keras(self.entry, arrays, shapes)[number] for arrays in torch), keras


class Sides(NamedTuple):
    """Both surveys, with the weights by name."""

    torch: Survey
    keras: Survey

    def weights(self, entry: Entry) -> tuple[list[Weight], list[Weight]]:
        """Return the tensors of an entry: torch's and Keras's."""
        ours, theirs = ({weight.name: weight for weight in side.weights} for side in self)
        return [ours[name] for name in entry.torch], [theirs[name] for name in entry.keras]


class Judge:
    """The decision on an entry whose values differ, from what a few further seeds change."""

    def __init__(self, sides: Sides, built: Built, draws: Draws) -> None:
        self.sides, self.built = sides, built
        self.torch, self.keras = changed(draws.torch), changed(draws.keras)
        self.drawing = {weight.module for weight in sides.keras.weights if weight.name in self.keras}

    def is_state(self, entry: Entry) -> bool:
        """Return whether training changes torch's values."""
        return bool(set(entry.torch) & set(self.sides.torch.rehearsal.changing))

    def size(self, entry: Entry) -> int:
        """Return how many numbers an entry has in Keras."""
        return sum(math.prod(weight.shape) for weight in self.sides.weights(entry)[1])

    def wanted(self, tables: Sequence[Entry]) -> tuple[int, list[str]]:
        """Return with how many further seeds these tables are to be drawn, and their names."""
        model = sum(math.prod(weight.shape) for weight in self.sides.keras.weights)
        names = [name for entry in tables for name in (*entry.torch, *entry.keras)]
        return distributions.builds(min(map(self.size, tables)), model) - 1, names

    def is_random(self, entry: Entry) -> bool:
        """Return whether a seed changes any value, on either side."""
        return not (self.torch.keys().isdisjoint(entry.torch) and self.keras.keys().isdisjoint(entry.keras))

    def is_random_table(self, entry: Entry) -> bool:
        """Return whether random values are part of the computation, and not weights that wait for a checkpoint's.

        In a frozen layer they are if they stand beside values that are computed; or if all are random on both sides and
        the user's own code chose them on either, beyond what the layer begins with.
        """
        if not self.is_random(entry) or self.is_state(entry) or self.built.is_unfilled(entry):
            return False
        ours, theirs = self.sides.weights(entry)
        sides = (ours, self.torch, self.built.rounded), (theirs, self.keras, self.built.keras)
        computed = (
            np.asarray(values[weight.name])[~random[weight.name]]
            for weights, random, values in sides
            for weight in weights
            if weight.name in random
        )
        # What is computed beside random values is not all the same, as zeros for padding are.
        is_beside_computed = any((each != each[:1]).any() for each in computed)
        is_chosen = _are_chosen(ours, self.sides.torch) or _are_chosen(theirs, self.sides.keras)
        on_both = not (self.torch.keys().isdisjoint(entry.torch) or self.keras.keys().isdisjoint(entry.keras))
        return self.is_own(entry) or is_beside_computed or (is_chosen and on_both)

    def is_disputed(self, entry: Entry) -> bool:
        """Return whether the two builders compute an entry's values differently.

        What a frozen layer holds counts only if Keras's builder chose it, neither side draws it, and Keras neither
        draws anything else of the layer nor leaves it to be filled.
        """
        theirs = self.sides.weights(entry)[1]
        in_drawn_layer = any(weight.module in self.drawing for weight in theirs)
        is_chosen = all(weight.chosen for weight in theirs)
        is_left = in_drawn_layer or self.is_random(entry) or self.built.is_unfilled(entry) or not is_chosen
        return self.is_own(entry) or not is_left

    def is_own(self, entry: Entry) -> bool:
        """Return whether it is a buffer of torch's or made untrained in Keras, and not only frozen."""
        ours, theirs = self.sides.weights(entry)
        return any(one.constant for one in ours) or any(one.fixed for one in theirs)


def _are_chosen(weights: Iterable[Weight], survey: Survey) -> bool:
    """Return whether the user's own code makes the modules of frozen weights, or their class, and chose the values."""
    made = [(weight, survey.made(weight.module)) for weight in weights]
    return all(weight.chosen and module and (module.calls or module.initialisers) for weight, module in made)


def _differing(arrays: Iterable[Floats]) -> Mask:
    """Return which elements have not the same value in all arrays."""
    each = iter(arrays)
    first = next(each)
    mask: Mask = np.zeros(first.shape, bool)
    for array in each:
        mask |= array != first
    return mask


def _runs(mask: Mask) -> list[tuple[int, int]]:
    """Return the ranges of elements, in row-major order, that are true."""
    edges = np.flatnonzero(np.diff(mask.reshape(-1), prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _part(name: str, mask: Mask) -> str:
    """Name the true part of a tensor's mask: by rows or columns where it is made up of them."""
    whole = f"{name} {list(mask.shape)}"
    if mask.all():
        return whole
    for axis, size in enumerate(mask.shape):
        slices = mask.any(_others(axis, mask))
        if mask.sum() * size == slices.sum() * mask.size:
            return f"{_slices(mask.ndim, axis, np.flatnonzero(slices).tolist())} of {whole}"
    return f"{int(mask.sum())} elements of {whole}"


def _others(axis: int, mask: Mask) -> tuple[int, ...]:
    return tuple(each for each in range(mask.ndim) if each != axis)


def _where(kept: Sequence[NDArray[np.int_]], apart: Contrast) -> str:
    """Return the slice or element that a contrast is of, to be put before its numbers; "" for the whole table.

    `kept`: the numbers of the slices along each axis that were compared.
    """
    if apart.number is None:
        return ""
    if apart.axis is None:
        position = np.unravel_index(apart.number, [len(numbers) for numbers in kept])
        return f"at {[int(numbers[each]) for numbers, each in zip(kept, position, strict=True)]} "
    return f"in {_slices(len(kept), apart.axis, [int(kept[apart.axis][apart.number])])} "


def _slices(dimensions: int, axis: int, numbers: Sequence[int]) -> str:
    noun = "element" if dimensions == 1 else "row" if axis == 0 else "column" if dimensions == 2 else "slice"
    along = f" along axis {axis}" if noun == "slice" else ""
    return f"{agree(len(numbers), noun)} {listed(list(map(str, numbers)), SHOWN)}{along}"
