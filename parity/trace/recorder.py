"""The recorder, to which a backend passes its tensors while it trains: it writes one file per step.

The first and the last training step are recorded completely; every k-th step between them with its
losses and gradients. Before the first step, parameters and buffers are recorded; after the last, the
forward pass of an evaluation. The indices of the samples are recorded for every step.

The high run is repeated, which shows whether the reference reproduces itself. A reference that is a function of its
inputs gives the same tensors, on a CPU bit by bit, when the same process runs it again; unseeded noise, a clock or a
counter in a user's code shows as a difference. Only the differences are kept.
"""

import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np

from parity.config.devices import Indices
from parity.core.arrays import Array
from parity.trace import keys
from parity.trace.summary import LARGE, summary
from parity.trace.tensorfile import TensorFile, Writer, blocks

STATE = {"parameter", "buffer"}
FORWARD = {"input", "activation"}
BETWEEN = {"loss", "gradient"}


class Recorder:
    """Writes the tensors of one run, of one rank or of one replica, into `folder`.

    `steps`: the number of training steps. `every`: record losses and gradients every so many steps.
    `micro_batches`: the number of parts into which each step's samples are cut. `flipped_axis`: the batch axis of a
    run whose batches are in reverse order (the witness), else None; the recorder restores the order of inputs and
    activations along that axis, and leaves out those without that axis. `summarises`: whether of large tensors only
    summaries are written (parity.trace.summary), but for those with the keys in `whole`.
    """

    def __init__(
        self,
        folder: Path,
        steps: int,
        every: int,
        micro_batches: int = 1,
        summarises: bool = False,
        whole: Collection[str] = (),
    ) -> None:
        self.folder, self.steps, self.every = folder, steps, every
        self._kept: int | None = None  # a further step whose state is recorded
        self.micro_batches = micro_batches
        self.summarises, self.whole = summarises, frozenset(whole)
        self.flipped_axis: int | None = None
        self._samples: list[Indices] = []
        self.step: int | None = None
        self.files: dict[str, list[str]] = {}
        self.digests: dict[str, str] = {}
        self.aliases: dict[str, dict[str, str]] = {}
        self.references: dict[str, list[str]] = {}
        self.summarised: dict[str, dict[str, tuple[int, ...]]] = {}
        self._writer: Writer | None = None
        self.keys: list[str] = []  # of the current step, in execution order
        self._repeats: Counter[str] = Counter()
        self._room = 1 << 12
        folder.mkdir(parents=True, exist_ok=True)

    def drew(self, indices: Indices) -> None:
        """Note the samples of a step when its batch is drawn; the batch of the evaluation is drawn last."""
        self._samples.append(indices)

    def wants(self, kind: str) -> bool:
        """Return whether the current step records tensors of this kind."""
        if self.step is None:
            return kind in STATE
        if self.step == self.steps:
            return kind in FORWARD
        if self.step in (0, self.steps - 1):
            return True
        return (kind in BETWEEN and self.step % self.every == 0) or (kind in STATE and self.step == self._kept)

    def keep_state(self) -> None:
        """Record the state behind the current step, although it may be one between the first and the last."""
        self._kept = self.step

    def add(self, kind: str, name: str, array: Array) -> str | None:
        """Store a tensor in canonical form and return its key; None if the current step does not record it."""
        if not self.wants(kind):
            return None
        if self._writer is None:
            self._writer = self._open()
        if self.flipped_axis is not None and kind in FORWARD:
            if not self._has_batch(array):
                return None
            array = np.flip(array, self.flipped_axis)
        key = self._next_key(kind, name)
        if self.is_summarised(key, array):
            self.summarised.setdefault(keys.step_file(self.step), {})[key] = array.shape
            array = summary(array)
        self._writer.add(key, array)
        self.keys.append(key)
        return key

    def is_summarised(self, key: str, array: Array) -> bool:
        """Return whether only the summary of a tensor is written."""
        return self.summarises and array.size > LARGE and key not in self.whole

    def alias(self, kind: str, name: str, key: str) -> None:
        """Record a tensor that is the same object as the one stored under `key` in this step; replaces `add`."""
        if self.wants(kind):
            own = self._next_key(kind, name)
            self.aliases.setdefault(keys.step_file(self.step), {})[own] = key
            self.keys.append(own)

    def same(self, kind: str, name: str) -> None:
        """Record a tensor that is bitwise equal to the one that rank 0 stores under this name; replaces `add`."""
        if self.wants(kind):
            self.references.setdefault(keys.step_file(self.step), []).append(self._next_key(kind, name))

    def _next_key(self, kind: str, name: str) -> str:
        """Return the key of the next tensor of this name, and count it."""
        plain = keys.key(kind, name)
        self._repeats[plain] += 1
        return keys.key(kind, name, self._repeats[plain] - 1)

    def _open(self) -> Writer:
        """Open the file of the current step and write the indices of the step's samples to it."""
        self._writer = Writer(self.folder / f"{keys.step_file(self.step)}.safetensors", self._room)
        if (samples := self._drawn()) is not None:
            self._writer.add(keys.key("sample", "indices"), samples)
            self.keys.append(keys.key("sample", "indices"))
        return self._writer

    def _drawn(self) -> Indices | None:
        return None if self.step is None or self.step >= len(self._samples) else self._samples[self.step]

    def _has_batch(self, array: Array) -> bool:
        """Return whether the array has the batch on the flipped axis, with as many samples as were drawn."""
        axis, drawn = self.flipped_axis, self._drawn()
        if axis is None or drawn is None or array.ndim <= axis:
            return False
        parts = 1 if self.step == self.steps else self.micro_batches
        return array.shape[axis] in {len(part) for part in np.array_split(drawn, parts)}

    def next_step(self) -> None:
        """Close the file of the current step; tensors added from now on belong to the next step."""
        if self._writer is None and self._drawn() is not None:
            self._open()
        if self._writer is not None:
            written = self._writer.close()
            self.digests[keys.step_file(self.step)] = self._writer.digest
            self.files[keys.step_file(self.step)] = self.keys
            # Estimate the next header: 160 bytes per tensor; a training step has about eight tensors per parameter.
            self._room = max(self._room, 160 * len(written) * (8 if self.step is None else 1))
            self._writer, self.keys = None, []
        self._advance()

    def _advance(self) -> None:
        self._repeats.clear()
        self.step = 0 if self.step is None else self.step + 1


BEYOND = sys.float_info.max  # stands for the difference if a number is not finite, or the shape or dtype changed


class Repeat(Recorder):
    """Compares tensors with those that `before` has written; `moved`: by step file, keys and largest difference."""

    def __init__(self, before: Recorder) -> None:
        settings = before.micro_batches, before.summarises, before.whole
        super().__init__(before.folder, before.steps, before.every, *settings)
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
        if self.is_summarised(key, array):
            array = summary(array)
        if self._stored is not None and key in self._stored and (largest := _difference(self._stored[key], array)):
            self.moved.setdefault(stem, {})[key] = largest
        return key

    def alias(self, kind: str, name: str, key: str = "") -> None:
        """Count a tensor that is the same object as one that `add` has compared already, or that rank 0 compares."""
        if self.wants(kind):
            self._next_key(kind, name)

    same = alias

    def next_step(self) -> None:
        """Begin the next step: tensors added from now on are compared with that step's file."""
        self._stored = None
        self._advance()


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
