"""What goes into both models of a pair: drawn by name from the common source, or read from an .npz file."""

import hashlib
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parity.config.pair import FLOATS, TARGET, Pair, PairInput
from parity.config.schema import Case
from parity.core import random
from parity.core.arrays import Array, Floats
from parity.core.errors import UsageError, nearest


class PairData:
    """The inputs of every step, floats as float64 and representable at the case's precision.

    `search`: the folders that files are looked for in. `nudged`: floats are one ulp of float64 away, but for whole
    numbers, which a model may compare or use as indices. Raises UsageError where an .npz does not have what it should.
    """

    batch_axis = 0
    backwards = False

    def __init__(self, case: Case, search: Sequence[str], nudged: bool = False) -> None:
        assert isinstance(case.model, Pair)
        self.case, self.pair, self._search, self._nudged = case, case.model, search, nudged
        self._files = {name: _from_file(name, given, search) for name, given in self.pair.inputs.items() if given.npz}

    @property
    def digest(self) -> str:
        """SHA-256 over names, dtypes, shapes and bytes of all steps' inputs."""
        sha = hashlib.sha256()
        for number in range(self.case.steps):
            for name in self.pair.inputs:
                array = self._values(name, number)
                sha.update(f"{name}{array.dtype}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()

    def reversed(self) -> "PairData":
        """What the witness is given: which axis is the batch's is not known, so the order stays, but the last bits."""
        return PairData(self.case, self._search, nudged=True)

    def step(self, number: int) -> dict[str, Array]:
        """The model's inputs in canonical axes, by canonical name; other values in every step, but those of files."""
        return {name: self._values(name, number) for name in self.pair.inputs if name != TARGET}

    def target(self, number: int, shape: tuple[int, ...], ids: bool) -> Array:
        """What the loss compares outputs of this shape with; `ids`: with class ids, the classes on the last axis."""
        if TARGET in self.pair.inputs:
            return self._values(TARGET, number)
        if ids:
            return _whole(self.case.seed, f"target/{number}", shape[:-1], 0, shape[-1]).astype(np.int64)
        return self._rounded(random.normal(self.case.seed, f"target/{number}", shape))

    def probe(self, number: int, shape: tuple[int, ...]) -> Floats:
        """What the elements of an output weigh in the scalar that is differentiated without a loss."""
        return self._rounded(random.normal(self.case.seed, f"probe/{number}", shape))

    def _values(self, name: str, number: int) -> Array:
        values = self._exact(name, number)
        if not self._nudged or values.dtype.kind != "f":
            return values
        moved = random.one_ulp_away(values, self.case.seed, f"witness/{name}/{number}")
        return np.asarray(np.where(values == np.round(values), values, moved))

    def _exact(self, name: str, number: int) -> Array:
        given = self.pair.inputs[name]
        if given.npz:
            return self._files[name] if given.dtype not in FLOATS else self._rounded(self._files[name])
        seed = self.case.seed if given.seed is None else given.seed
        shape, key = tuple(given.shape), f"input/{name}/{number}"
        if given.dtype in FLOATS:
            return self._rounded(random.normal(seed, key, shape) * given.scale)
        first, beyond = given.range or (0, 2)
        return _whole(seed, key, shape, first, beyond).astype(given.dtype)

    def _rounded(self, values: Floats) -> Floats:
        return np.asarray(random.representable(values, self.case.precision))  # NumPy makes 0-d arrays numbers


def _whole(seed: int, key: str, shape: tuple[int, ...], first: int, beyond: int) -> Array:
    bits = random.bits(seed, key, math.prod(shape)) >> np.uint64(11)
    return ((bits % np.uint64(beyond - first)).astype(np.int64) + first).reshape(shape)


def _from_file(name: str, given: PairInput, search: Sequence[str]) -> Array:
    found = next((path for folder in search if (path := Path(folder) / given.npz).is_file()), None)
    if found is None:
        raise UsageError(f"inputs.{name}: there is no file {given.npz!r} in {' or '.join(search)}")
    try:
        with np.load(found, allow_pickle=False) as arrays:
            if name not in arrays:
                raise UsageError(f"inputs.{name}: {found} has no array {name!r}{nearest(name, list(arrays))}")
            array = arrays[name]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"inputs.{name}: {found} cannot be read: {error}") from None
    kinds = {"f": given.dtype in FLOATS, "b": given.dtype == "bool"}
    if not kinds.get(array.dtype.kind, array.dtype.kind in "iu" and given.dtype not in (*FLOATS, "bool")):
        raise UsageError(f"inputs.{name}: {found} has dtype {array.dtype}, expected {given.dtype}; set dtype")
    if given.shape and tuple(given.shape) != array.shape:
        raise UsageError(f"inputs.{name}: {found} has the shape {array.shape}, expected {tuple(given.shape)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UsageError(f"inputs.{name}: {found} has numbers that are not finite")
    values: Array = array.astype(np.float64 if array.dtype.kind == "f" else given.dtype)
    return values
