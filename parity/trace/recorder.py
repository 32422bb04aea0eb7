"""What a backend's probe writes to: one file per step, each tensor as it happens.

Which kinds a step records: everything in the first and the last step, losses and gradients at every
k-th between, parameters and buffers before the first, the forward after the last (an evaluation); and
the indices of the samples of every step.
"""

from collections import Counter
from pathlib import Path

import numpy as np

from parity.config.shards import Indices
from parity.core.arrays import Array
from parity.trace import keys
from parity.trace.tensorfile import Writer

STATE = {"parameter", "buffer"}
FORWARD = {"input", "activation"}
BETWEEN = {"loss", "gradient"}


class Recorder:
    """Writes the tensors of one run of one rank, or of one replica, into `folder`.

    `steps`: how many training steps will follow. `micro_batches`: into how many parts each step's
    samples are cut. `flipped_axis`: the batch axis of a run whose batches are in reverse order; inputs
    and activations are turned back, and left out where they do not have that axis.
    """

    def __init__(self, folder: Path, steps: int, every: int, micro_batches: int = 1) -> None:
        self.folder = folder
        self.steps = steps
        self.every = every
        self.micro_batches = micro_batches
        self.flipped_axis: int | None = None
        self._samples: list[Indices] = []
        self.step: int | None = None
        self.files: dict[str, list[str]] = {}
        self.digests: dict[str, str] = {}
        self.aliases: dict[str, dict[str, str]] = {}
        self.references: dict[str, list[str]] = {}
        self._writer: Writer | None = None
        self._keys: list[str] = []  # of the present step, in execution order
        self._repeats: Counter[str] = Counter()
        self._room = 1 << 12
        folder.mkdir(parents=True, exist_ok=True)

    def drew(self, indices: Indices) -> None:
        """Note the samples of a whole step as its batch is drawn; the evaluation draws last."""
        self._samples.append(indices)

    def wants(self, kind: str) -> bool:
        """Whether the present step records tensors of this kind."""
        if self.step is None:
            return kind in STATE
        if self.step == self.steps:
            return kind in FORWARD
        if self.step in (0, self.steps - 1):
            return True
        return kind in BETWEEN and self.step % self.every == 0

    def add(self, kind: str, name: str, array: Array) -> str | None:
        """Store one tensor in canonical form, if the present step records its kind; the key that it has got."""
        if not self.wants(kind):
            return None
        if self._writer is None:
            self._writer = self._open()
        if self.flipped_axis is not None and kind in FORWARD:
            if not self._has_batch(array):
                return None
            array = np.flip(array, self.flipped_axis)
        key = self._next_key(kind, name)
        self._writer.add(key, array)
        self._keys.append(key)
        return key

    def alias(self, kind: str, name: str, key: str) -> None:
        """Instead of `add`: the tensor is the very one that this step has stored under `key`."""
        if self.wants(kind):
            own = self._next_key(kind, name)
            self.aliases.setdefault(keys.step_file(self.step), {})[own] = key
            self._keys.append(own)

    def same(self, kind: str, name: str) -> None:
        """Instead of `add`: the tensor is, bit by bit, the one that rank 0 stores under this name."""
        if self.wants(kind):
            self.references.setdefault(keys.step_file(self.step), []).append(self._next_key(kind, name))

    def _next_key(self, kind: str, name: str) -> str:
        """The key of the next tensor of this name."""
        plain = keys.key(kind, name)
        self._repeats[plain] += 1
        return keys.key(kind, name, self._repeats[plain] - 1)

    def _open(self) -> Writer:
        """The file of the present step; it begins with the step's samples."""
        self._writer = Writer(self.folder / f"{keys.step_file(self.step)}.safetensors", self._room)
        if (samples := self._drawn()) is not None:
            self._writer.add(keys.key("sample", "indices"), samples)
            self._keys.append(keys.key("sample", "indices"))
        return self._writer

    def _drawn(self) -> Indices | None:
        return None if self.step is None or self.step >= len(self._samples) else self._samples[self.step]

    def _has_batch(self, array: Array) -> bool:
        """Whether the batch stands on its axis, as long as was drawn: then it can be turned back."""
        axis, drawn = self.flipped_axis, self._drawn()
        if axis is None or drawn is None or array.ndim <= axis:
            return False
        parts = 1 if self.step == self.steps else self.micro_batches
        return array.shape[axis] in {len(part) for part in np.array_split(drawn, parts)}

    def next_step(self) -> None:
        """Close the present step's file; the next tensors belong to the next step."""
        if self._writer is None and self._drawn() is not None:
            self._open()
        if self._writer is not None:
            written = self._writer.close()
            self.digests[keys.step_file(self.step)] = self._writer.digest
            self.files[keys.step_file(self.step)] = self._keys
            # A whole step has about eight tensors for each parameter, an entry of the header 160 bytes.
            self._room = max(self._room, 160 * len(written) * (8 if self.step is None else 1))
            self._writer, self._keys = None, []
        self._repeats.clear()
        self.step = 0 if self.step is None else self.step + 1
