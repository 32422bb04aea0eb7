"""The high run done once more, unchanged: is the reference a function of its inputs?

Nothing of it is kept but where it was another than before. What a reference computes must be the same, bit by bit on
a CPU, when the same process does the same again: unseeded noise, a clock or a counter in a user's code show here.
"""

import sys

import numpy as np

from parity.core.arrays import Array
from parity.trace import keys
from parity.trace.pages import blocks
from parity.trace.recorder import Recorder
from parity.trace.tensorfile import TensorFile

BEYOND = sys.float_info.max  # the difference where one of the numbers is not finite, or the tensor is another


class Repeat(Recorder):
    """A recorder that compares what it is given with what `before`, of the same run, has written.

    `moved`: by step file, the tensors that are not the same bit by bit, with their largest difference.
    """

    def __init__(self, before: Recorder) -> None:
        super().__init__(before.folder, before.steps, before.every, before.micro_batches)
        self._before = before
        self._stored: TensorFile | None = None
        self.moved: dict[str, dict[str, float]] = {}

    def add(self, kind: str, name: str, array: Array) -> str | None:
        """Compare one tensor, if the present step records its kind; the key that it has got."""
        if not self.wants(kind):
            return None
        key, stem = self._next_key(kind, name), keys.step_file(self.step)
        if self._stored is None and stem in self._before.files:
            self._stored = TensorFile(self.folder / f"{stem}.safetensors")
        if self._stored is not None and key in self._stored and (apart := _apart(self._stored[key], array)):
            self.moved.setdefault(stem, {})[key] = apart
        return key

    def alias(self, kind: str, name: str, key: str) -> None:
        """Count the tensor; it is one that `add` was given."""
        if self.wants(kind):
            self._next_key(kind, name)

    def same(self, kind: str, name: str) -> None:
        """Count the tensor; rank 0 compares it."""
        if self.wants(kind):
            self._next_key(kind, name)

    def next_step(self) -> None:
        """The next tensors belong to the next step."""
        self._stored = None
        self._repeats.clear()
        self.step = 0 if self.step is None else self.step + 1


def _apart(before: Array, now: Array) -> float:
    """The largest difference of two arrays; 0 only if they are equal, NaN to NaN."""
    if before.shape != now.shape or before.dtype != now.dtype:
        return BEYOND
    largest = 0.0
    for one, other in blocks(before, np.ascontiguousarray(now)):
        if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            with np.errstate(all="ignore"):
                apart = float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max())
            largest = max(largest, apart if np.isfinite(apart) else BEYOND)
    return largest
