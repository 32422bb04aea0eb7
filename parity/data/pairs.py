"""The inputs of a pair's models: drawn by name from the seeded source, or read from an .npz file."""

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity.config.pair import FLOATS, SAMPLE_WEIGHT, TARGET, Pair, PairInput
from parity.config.schema import Case
from parity.core import random
from parity.core.arrays import Array, Floats, digest
from parity.core.errors import UsageError, nearest


class Rows(NamedTuple):
    """Consecutive rows of a batch of `whole` rows."""

    first: int
    number: int
    whole: int

    def within(self, size: int, where: str) -> tuple[int, int]:
        """Return the place of a tensor of `size` elements of these rows in that of the whole batch, and its size.

        Raises UsageError if it has no equal rows.
        """
        if size % self.number:
            raise UsageError(
                f"{where}: {size} random numbers, such as a dropout's mask, are no {self.number} rows of samples along "
                "dim 0, so that they are no part of those of the whole batch; leave them out to compare these sides"
            )
        return size // self.number * self.first, size // self.number * self.whole


def rows_of(given: Iterable[Array], batch: Iterable[Array]) -> Rows | None:
    """Return which rows of a batch's inputs a model is given; None for all of them, or others."""
    arrays = list(given)
    for whole in batch:
        for array in arrays:
            number, total = len(array) if array.ndim else 0, len(whole) if whole.ndim else 0
            if 0 < number < total and array.shape[1:] == whole.shape[1:]:
                for first in range(total - number + 1):
                    if np.array_equal(array, whole[first : first + number]):
                        return Rows(first, number, total)
    return None


class PairData:
    """The inputs of every step; floats are float64 values that the case's run precision can represent.

    `search`: the folders in which .npz files are searched for. `nudged`: move floats by one float64 ulp, except whole
    numbers, which a model may compare or use as indices. Raises UsageError if an .npz file cannot be used.
    """

    batch_axis = 0
    backwards = False

    def __init__(self, case: Case, search: Sequence[str], nudged: bool = False) -> None:
        assert isinstance(case.model, Pair)
        self.case, self.pair, self._search, self._nudged = case, case.model, search, nudged
        files = {name: given for name, given in self.pair.inputs.items() if given.npz}
        self._files = {name: list(_from_file(name, given, search)) for name, given in files.items()}

    @property
    def digest(self) -> str:
        """SHA-256 of the names, dtypes, shapes and bytes of all steps' inputs."""
        steps = range(self.case.steps)
        return digest((name, self.values(name, number)) for number in steps for name in self.pair.inputs)

    def reversed(self) -> "PairData":
        """Return the inputs of the witness run, with floats moved by one ulp.

        Unlike a `Dataset`, it does not reverse the batches, because the batch axis of a pair's inputs is unknown.
        """
        return PairData(self.case, self._search, nudged=True)

    def step(self, number: int) -> dict[str, Array]:
        """Return the model's inputs by canonical name, in torch's axis order.

        Drawn values differ from step to step; those from files are the same in every step for which they have no own.
        """
        return {name: self.values(name, number) for name in self.pair.inputs if name not in self.pair.loss_inputs}

    def target(self, number: int, shape: tuple[int, ...], ids: bool) -> Array:
        """Return the target of a step for outputs of this shape.

        It is the input named "target" if the pair has one. Otherwise it is drawn: with `ids`, class ids for outputs
        whose last axis holds the classes, else normal numbers of the outputs' shape.
        """
        if TARGET in self.pair.inputs:
            return self.values(TARGET, number)
        if ids:
            return random.integers(self.case.seed, f"target/{number}", shape[:-1], 0, shape[-1])
        return self._rounded(random.normal(self.case.seed, f"target/{number}", shape))

    def further_targets(self, number: int) -> dict[str, Array]:
        """Return what a step of the user's own takes beside the model's inputs and the target, by name."""
        return {name: self.values(name, number) for name in self.pair.further_targets}

    def sample_weight(self, number: int) -> Array | None:
        """Return the weights of a step's samples; None if the pair has no such input."""
        return self.values(SAMPLE_WEIGHT, number) if SAMPLE_WEIGHT in self.pair.inputs else None

    def part(self, index: int, of: int, switch: str) -> "PairData":
        """Return the data with one of `of` equal parts of each batch, cut along the first axis.

        Raises UsageError, which names the switch that cuts, where an array has no such parts.
        """
        return self if of == 1 else _Part(self, index, of, switch)

    def part_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that an output of this shape, for the whole batch, has for this data."""
        return shape

    def probe(self, number: int, shape: tuple[int, ...]) -> Floats:
        """Return random factors for an output's elements; without a loss, their weighted sum is differentiated."""
        return self._rounded(random.normal(self.case.seed, f"probe/{number}", shape))

    def values(self, name: str, number: int) -> Array:
        """Return an input of a step, be it the model's or of the loss."""
        values = self._exact(name, number)
        if not self._nudged or values.dtype.kind != "f":
            return values
        moved = random.one_ulp_away(values, self.case.seed, f"witness/{name}/{number}")
        return np.asarray(np.where(values == np.round(values), values, moved))

    def _exact(self, name: str, number: int) -> Array:
        given = self.pair.inputs[name]
        if given.npz:
            held = self._files[name]
            values = held[min(number, len(held) - 1)]
            return values if given.dtype not in FLOATS else self._rounded(values)
        seed = self.case.seed if given.seed is None else given.seed
        shape, key = tuple(given.shape), f"input/{name}/{number}"
        if given.dtype in FLOATS:
            return self._rounded(random.normal(seed, key, shape) * given.scale)
        first, stop = given.range or (0, 2)
        return random.integers(seed, key, shape, first, stop).astype(given.dtype)

    def _rounded(self, values: Floats) -> Floats:
        return np.asarray(random.representable(values, self.case.precision))  # NumPy makes 0-d arrays numbers


class _Part(PairData):
    """One of several equal parts of each batch of `whole`."""

    def __init__(self, whole: PairData, index: int, of: int, switch: str) -> None:
        vars(self).update(vars(whole))
        self._whole, self._index, self._of, self._switch = whole, index, of, switch

    def target(self, number: int, shape: tuple[int, ...], ids: bool) -> Array:
        """Return the part's target; `shape` is that of the output for this part."""
        if TARGET in self.pair.inputs:
            return super().target(number, shape, ids)
        return self._cut("the target", self._whole.target(number, (shape[0] * self._of, *shape[1:]), ids))

    def part_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that an output of this shape, for the whole batch, has for this part."""
        return (shape[0] // self._of, *shape[1:]) if shape else ()

    def values(self, name: str, number: int) -> Array:
        """Return an input of a step, be it the model's or of the loss."""
        return self._cut(f"the input {name}", self._whole.values(name, number))

    def _cut(self, what: str, array: Array) -> Array:
        if array.ndim == 0 or array.shape[0] % self._of:
            rows = f"has {array.shape[0]} rows along dim 0" if array.ndim else "is a single number"
            raise UsageError(
                f"{self._switch}: {what} {rows}, expected a multiple of {self._of}: a batch is cut along dim 0 into "
                f"{self._of} equal parts; change the shape, or the number of parts"
            )
        size = array.shape[0] // self._of
        return np.asarray(array[self._index * size : (self._index + 1) * size])


def file_of(name: str, given: PairInput, search: Sequence[str]) -> Path:
    """Return the .npz file of an input. Raises UsageError if there is none."""
    file = next((path for folder in search if (path := Path(folder) / given.npz).is_file()), None)
    if file is None:
        raise UsageError(f"inputs.{name}: there is no file {given.npz!r} in {' or '.join(search)}")
    return file


def _from_file(name: str, given: PairInput, search: Sequence[str]) -> Iterator[Array]:
    """Yield an input's arrays from its .npz file, floats as float64: NAME, or NAME@0, NAME@1... for the steps.

    Raises UsageError if one does not fit the input.
    """
    file = file_of(name, given, search)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            of_steps = (key for key in arrays if key.rpartition("@")[0] == name)
            keys = [name] if name in arrays else sorted(of_steps, key=lambda key: int(key.rpartition("@")[2]))
            if not keys:
                raise UsageError(f"inputs.{name}: {file} has no array {name!r}{nearest(name, list(arrays))}")
            read = {key: arrays[key] for key in keys}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"inputs.{name}: {file} cannot be read as an .npz file: {error}") from None
    for array in read.values():
        yield _checked(name, given, file, array)


def _checked(name: str, given: PairInput, file: Path, array: Array) -> Array:
    kinds = {"f": given.dtype in FLOATS, "b": given.dtype == "bool"}
    if not kinds.get(array.dtype.kind, array.dtype.kind in "iu" and given.dtype not in (*FLOATS, "bool")):
        raise UsageError(
            f"inputs.{name}: the array in {file} has the dtype {array.dtype}, but the input has dtype = "
            f'"{given.dtype}"; change one of them'
        )
    if given.shape and tuple(given.shape) != array.shape:
        raise UsageError(
            f"inputs.{name}: the array in {file} has the shape {array.shape}, expected {tuple(given.shape)} as in the "
            "pair file; change one of them"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UsageError(f"inputs.{name}: the array in {file} has NaN or infinite numbers, expected finite ones")
    values: Array = array.astype(np.float64 if array.dtype.kind == "f" else given.dtype)
    return values
