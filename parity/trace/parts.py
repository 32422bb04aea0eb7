"""The recording of a training whose batches are cut into parts: micro-batches, and the ranks that train together.

What the forward passes of a step record is kept until all parts have run, and joined along the first axis, so that it
can be compared with that of the whole batch. Of several ranks the first one records, and the others only what should be
equal on all ranks and is not.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.core.arrays import Array
from parity.trace.recorder import FORWARD, Recorder

Gather = Callable[[Any], list[Any]]  # returns what each rank has given, by rank
Tensors = dict[tuple[str, str, int], Array]  # by kind, name, and the number of the call
ON_ALL = ("gradient", "parameter")  # the kinds that are equal on all ranks after an update


class Parts(Recorder):
    """Records whole batches that are run in parts, into `recorder`; `gather` exchanges values with other ranks."""

    def __init__(self, recorder: Recorder, rank: int = 0, gather: Gather = lambda value: [value]) -> None:
        self._recorder, self._rank, self._gather = recorder, rank, gather
        self._parts: dict[int, list[Tensors]] = {}
        self._part = threading.local()  # what a thread runs: each replica of tf.distribute has a thread of its own
        self._shared: dict[tuple[str, str], Array] = {}
        self.keys: list[str] = []  # of what is given whole; nothing tells the order of parts

    def begin(self, replica: int = 0) -> None:
        """Begin the forward pass of a replica's next part of a batch; this thread's tensors are of that part."""
        self._part.tensors, self._part.called = {}, Counter()
        self._parts.setdefault(replica, []).append(self._part.tensors)

    def join(self) -> None:
        """Store what the forward passes of all parts, on all ranks, have recorded; the batch is whole again."""
        by_rank = self._gather([part for _, own in sorted(self._parts.items()) for part in own])
        self._parts = {}
        parts: list[Tensors] = [part for of_rank in by_rank for part in of_rank]
        for place in parts[0] if parts else ():
            arrays = [part[place] for part in parts if place in part]
            # A number, or a tensor whose other axes depend on the part, has no whole that is made of its parts.
            if len(arrays) == len(parts) and arrays[0].ndim and len({array.shape[1:] for array in arrays}) == 1:
                self._store(*place[:2], np.concatenate(arrays))

    def wants(self, kind: str) -> bool:
        """Return whether the current step records tensors of this kind."""
        return self._recorder.wants(kind)

    def keep_state(self) -> None:
        """Record the state behind the current step, although it may be one between the first and the last."""
        self._recorder.keep_state()

    def add(self, kind: str, name: str, array: Array) -> str | None:
        """Keep a tensor of a part's forward pass, or store any other one."""
        if not self.wants(kind):
            return None
        if self._parts and kind in FORWARD:
            self._part.tensors[kind, name, self._part.called[kind, name]] = np.array(array)
            self._part.called[kind, name] += 1
            return None
        if kind in ON_ALL:
            self._shared[kind, name] = np.array(array)
        return self._store(kind, name, array)

    def alias(self, kind: str, name: str, key: str) -> None:
        """Record a tensor that is the same object as the one stored under `key` in this step; replaces `add`."""
        if self._rank == 0:
            self._recorder.alias(kind, name, key)

    def next_step(self) -> None:
        """Store what this rank holds otherwise than the first, and close the file of the current step."""
        content = {place: np.ascontiguousarray(array).data for place, array in self._shared.items()}
        own = {place: hashlib.blake2b(each, digest_size=16).digest() for place, each in content.items()}
        digests = self._gather(own)
        for (kind, name), array in self._shared.items():
            if digests[self._rank][kind, name] != digests[0].get((kind, name)):
                self._recorder.add(kind, f"{name}@rank{self._rank}", array)
        self._shared.clear()
        self._recorder.next_step()

    def _store(self, kind: str, name: str, array: Array) -> str | None:
        return self._recorder.add(kind, name, array) if self._rank == 0 else None
