"""The repetition of the high run, which shows whether the reference reproduces itself.

A reference that is a function of its inputs gives the same tensors, on a CPU bit by bit, when the same process runs it
again; unseeded noise, a clock or a counter in a user's code shows as a difference. Only the differences are kept.
"""

import sys

import numpy as np

from parity.core.arrays import Array
from parity.trace import keys
from parity.trace.pages import blocks
from parity.trace.recorder import Recorder
from parity.trace.tensorfile import TensorFile

BEYOND = sys.float_info.max  # stands for the difference if a number is not finite, or the shape or dtype changed


class Repeat(Recorder):
    """A recorder that compares its tensors with those that the recorder `before` has written, and stores none.

    `moved`: by step file, the keys of the tensors that are not bitwise equal, with their largest difference.
    """

    def __init__(self, before: Recorder) -> None:
        super().__init__(before.folder, before.steps, before.every, before.micro_batches)
        self._before = before
        self._stored: TensorFile | None = None
        self.moved: dict[str, dict[str, float]] = {}

    def add(self, kind: str, name: str, array: Array) -> str | None:
        """Compare a tensor with the stored one and return its key; None if the current step does not record it."""
        if not self.wants(kind):
            return None
        key, stem = self._next_key(kind, name), keys.step_file(self.step)
        if self._stored is None and stem in self._before.files:
            self._stored = TensorFile(self.folder / f"{stem}.safetensors")
        if self._stored is not None and key in self._stored and (largest := _difference(self._stored[key], array)):
            self.moved.setdefault(stem, {})[key] = largest
        return key

    def alias(self, kind: str, name: str, key: str) -> None:
        """Count a tensor that is the same object as one that `add` has compared already."""
        if self.wants(kind):
            self._next_key(kind, name)

    def same(self, kind: str, name: str) -> None:
        """Count a tensor that rank 0 compares."""
        if self.wants(kind):
            self._next_key(kind, name)

    def next_step(self) -> None:
        """Begin the next step: tensors added from now on are compared with that step's file."""
        self._stored = None
        self._repeats.clear()
        self.step = 0 if self.step is None else self.step + 1


def _difference(before: Array, now: Array) -> float:
    """Return the largest difference of two arrays: 0 only if they are equal, where NaN equals NaN."""
    if before.shape != now.shape or before.dtype != now.dtype:
        return BEYOND
    largest = 0.0
    for old, new in blocks(before, np.ascontiguousarray(now)):
        if np.array_equal(old, new):  # nearly always; with equal_nan it takes four times as long
            continue
        if not np.array_equal(old, new, equal_nan=old.dtype.kind == "f"):
            with np.errstate(all="ignore"):
                difference = float(np.abs(old.astype(np.float64) - new.astype(np.float64)).max())
            largest = max(largest, difference if np.isfinite(difference) else BEYOND)
    return largest
