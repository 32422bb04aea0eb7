"""Make the inputs of each variation from the description of the inputs that were given.

Both backends make the same list independently, since it depends only on the case and the files that it names.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from parity.config.pair import FLOATS, Pair, PairInput
from parity.config.schema import Case
from parity.core.arrays import Array, digest
from parity.data.pairs import PairData

GIVEN = "inputs given"
CALLED = "model(x)"  # the call that users write: no argument but the inputs, no gradients, nothing switched off
ALWAYS = 2  # so many variations, the first, are run for every pair: they have the inputs given
SECOND_CALL = "second call"
ANOTHER = "another seed"  # after the second call, so that what a model keeps of other inputs shows
TRAINING = "training mode"
ZEROS = "zeros"
BATCH_SIZE = "batch size"  # followed by the size
BATCH_SIZES = (1, 3)
SCALES = (0.01, 100.0)
MOST_SIZES = 3  # at most so many sizes of dimensions are varied
FAR = 130  # a size beyond the windows, buckets and tables that models of sequences have: 64, or 128
MOST_ELEMENTS = 1 << 16  # with more elements than this in an input, no dimension is doubled
EITHER, REFERENCE = ("torch", "keras"), ("torch",)
Inputs = dict[str, Array]
Shapes = Mapping[str, tuple[int, ...]]
Change = Callable[[PairInput, Array], Array]
Concerns = Callable[[PairInput, Array], bool]


class Variation(NamedTuple):
    """One call of the models, with inputs by canonical name, in canonical axes.

    `training` says whether the models are called in training mode; None leaves it to the call. `may_fail` names the
    sides that are free to refuse these inputs, so that their failure alone is no difference between the models.
    """

    name: str
    inputs: Inputs
    training: bool | None = False
    may_fail: tuple[str, ...] = ()


def variations(case: Case, search: Sequence[str], few: bool = False) -> list[Variation]:
    """Return the inputs given, first, then every variation of them that is not equal to an earlier one.

    With `few`, for a model whose calls take long, there is one other batch size, and one other size of a dimension, and
    other values are those of one sample.

    Raises UsageError if an .npz file of the pair cannot be read.
    """
    assert isinstance(case.model, Pair)
    source = _Source(case, case.model, search, few)
    given = source.given
    kept = [Variation(GIVEN, given), *(Variation(name, given, training=None) for name in (CALLED, SECOND_CALL))]
    digests = {digest(given.items())}
    is_bound = any(each.only for each in case.model.inputs.values())  # what one model makes of others, as lengths
    for variation in () if is_bound else source.others():
        if (own := digest(variation.inputs.items())) not in digests:
            digests.add(own)
            kept.append(variation)
    return [*kept, Variation(TRAINING, given, training=True)]


def is_mask(given: PairInput, array: Array) -> bool:
    """Return whether an input is a mask: truth values, or integers that are 0 or 1."""
    if given.dtype == "bool" or given.dtype in FLOATS:
        return given.dtype == "bool"
    return bool(np.isin(array, (0, 1)).all()) if given.npz else (given.range or (0, 2)) == (0, 2)


@dataclass
class _Source:
    """What a pair's inputs are drawn from, or read: its case, and the folders that are searched for files."""

    case: Case
    pair: Pair
    search: Sequence[str]
    few: bool

    @cached_property
    def given(self) -> Inputs:
        """Return the inputs as the file gives them."""
        return PairData(self.case, self.search).step(0)

    @cached_property
    def samples(self) -> Inputs:
        """Return the inputs that get other values in the same shapes: those given, or with `few` their first sample."""
        is_cut = self.few and self._is_batched()
        return {name: array[:1] if is_cut and array.ndim else array for name, array in self.given.items()}

    def others(self) -> Iterator[Variation]:
        """Yield all variations with other inputs."""
        most = 1 if self.few else None
        seeds = {name: self.case.seed if of.seed is None else of.seed for name, of in self.pair.inputs.items()}
        yield Variation(ANOTHER, self._drawn({name: {"seed": seed + 1} for name, seed in seeds.items()}))
        own = max((len(array) for array in self.given.values() if array.ndim), default=0)
        for size in (*BATCH_SIZES, 2 * own)[:most] if self._is_batched() else ():
            shapes = {name: (size, *array.shape[1:]) for name, array in self.given.items() if array.ndim}
            yield Variation(f"{BATCH_SIZE} {size}", self._reshaped(shapes))
        yield from itertools.islice(self._lengths(), most)
        yield from self._values()

    def _values(self) -> Iterator[Variation]:
        """Yield variations with other values in the same shapes."""

        def changed(name: str, concerns: Concerns, change: Change) -> Variation:
            arrays = {
                key: change(self.pair.inputs[key], array) if concerns(self.pair.inputs[key], array) else array
                for key, array in self.samples.items()
            }
            # If torch's model refuses these values, nothing is expected of its port.
            return Variation(name, arrays, may_fail=REFERENCE)

        for scale in SCALES:
            yield changed(f"scale {scale:g}", is_float, lambda _, array, scale=scale: np.asarray(array * scale))  # type: ignore[misc]
        yield changed(ZEROS, is_float, lambda _, array: np.zeros_like(array))
        # Floats that are drawn have both signs.
        yield changed("the other sign", lambda of, _: of.dtype in FLOATS and bool(of.npz), lambda _, array: -array)
        # Nobody sends a row of nothing but padding, which leaves softmax nothing to attend to. So the first position of
        # each row counts in a mask, and has another id where all others have the first one, which often is padding.
        yield changed("integers at their first", _is_ranged, lambda of, array: _filled(array, *_ends(of)))
        yield changed("integers at their last", _is_ranged, lambda of, array: np.full_like(array, _ends(of)[1]))
        yield changed("padding id 0", is_padded, lambda _, array: padded(array))._replace(may_fail=EITHER)
        yield changed("masks all true", is_mask, lambda _, array: np.ones_like(array))
        yield changed("masks false but at one position", is_mask, lambda _, array: _filled(array, 0, 1))

    def _is_batched(self) -> bool:
        """Return whether all inputs have one number of samples, and none is a matrix of them, as of a graph's edges."""
        arrays = [array for array in self.given.values() if array.ndim]
        are_edges = (array.dtype.kind == "f" and array.shape == 2 * array.shape[:1] for array in arrays)
        are_read = any(each.npz for each in self.pair.inputs.values())  # drawn shapes would have been chosen otherwise
        return len({array.shape[0] for array in arrays}) == 1 and not (len(arrays) > 1 and are_read and any(are_edges))

    def _lengths(self) -> Iterator[Variation]:
        """Yield variations with the size of a later dimension replaced by another one, wherever it occurs."""
        drawn = {name: array.shape for name, array in self.given.items() if not self.pair.inputs[name].npz}
        fixed = {size for name, array in self.given.items() if name not in drawn for size in array.shape[1:]}
        sizes = dict.fromkeys(size for shape in drawn.values() for size in shape[1:] if size > 1 and size not in fixed)
        for size in list(sizes)[:MOST_SIZES]:
            small = all(array.size <= MOST_ELEMENTS for array in self.given.values())
            for new_size in (size - 1, size + 1, 2 * size, FAR)[: 4 if small else 2]:
                shapes = {
                    name: (*shape[:1], *(new_size if axis_size == size else axis_size for axis_size in shape[1:]))
                    for name, shape in drawn.items()
                }
                is_far = new_size > 2 * size
                if is_far and max(map(math.prod, shapes.values())) > MOST_ELEMENTS:
                    continue
                yield Variation(f"length {new_size} for {size}", self._reshaped(shapes), may_fail=EITHER)
            yield from self._one_axis(drawn, size)

    def _one_axis(self, drawn: Shapes, size: int) -> Iterator[Variation]:
        """Yield variations with one more along a single axis of an input that has several of that size.

        They need not be the same dimension: the length of a sequence may be equal to the number of its channels. An
        input with one axis of that size follows.
        """
        axes = {name: [axis for axis, n in enumerate(shape) if axis and n == size] for name, shape in drawn.items()}
        single = {name: own[0] for name, own in axes.items() if len(own) == 1}
        for name, own in axes.items():
            for axis in own if len(own) > 1 else ():
                grown = {**single, name: axis}
                shapes = {
                    each: tuple(n + (number == grown.get(each)) for number, n in enumerate(shape))
                    for each, shape in drawn.items()
                }
                what = f"length {size + 1} for {size} along axis {axis} of {name}"
                yield Variation(what, self._reshaped(shapes), may_fail=EITHER)

    def _reshaped(self, shapes: Shapes) -> Inputs:
        """Return inputs of other shapes: drawn again, or for inputs from a file repeated or cut off."""
        files = {name for name, given in self.pair.inputs.items() if given.npz}
        drawn = self._drawn({name: {"shape": list(shape)} for name, shape in shapes.items() if name not in files})
        return {
            name: np.resize(self.given[name], shapes[name]) if name in files and name in shapes else array
            for name, array in drawn.items()
        }

    def _drawn(self, changes: Mapping[str, dict[str, Any]]) -> Inputs:
        """Return the inputs with other fields of their descriptions, by name."""
        inputs = {name: replace(given, **changes.get(name, {})) for name, given in self.pair.inputs.items()}
        return PairData(replace(self.case, model=replace(self.pair, inputs=inputs)), self.search).step(0)


def _filled(array: Array, value: int, at_first: int) -> Array:
    """Return an array full of a value, but with another one at the first position of every row, if it has rows."""
    filled = np.full_like(array, value)
    if array.ndim > 1:
        filled[..., 0] = at_first
    return filled


def padded(array: Array) -> Array:
    """Return the array with 0 in the last quarter of its last axis: who looks back a few places still finds some."""
    padded = array.copy()
    if array.ndim and array.shape[-1] > 1:
        padded[..., -max(1, array.shape[-1] // 4) :] = 0
    return padded


def is_float(given: PairInput, array: Array) -> bool:
    return given.dtype in FLOATS


def _is_ranged(given: PairInput, array: Array) -> bool:
    """Return whether the file gives an integer input a range that is not a mask's."""
    return given.range is not None and not is_mask(given, array) and not given.npz


def is_padded(given: PairInput, array: Array) -> bool:
    return _is_ranged(given, array) and _ends(given)[0] >= 0


def _ends(given: PairInput) -> tuple[int, int]:
    """Return the first and the last integer of an input's range."""
    first, beyond = given.range or (0, 2)
    return first, beyond - 1
