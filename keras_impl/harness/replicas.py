"""The replicas' recorders, to which the probe hands its tensors; they are stored in canonical form.

A later replica's tensor that is bitwise equal to the first replica's is only noted as the same.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
from einops import rearrange

from keras_impl.harness import weights
from parity.config import schema
from parity.trace.recorder import Recorder

# The change from a model's axis order to PyTorch's, by the number of axes of the tensor.
LAYOUTS: dict[type, dict[int, str]] = {
    schema.ResidualBlock: {4: "n h w c -> n c h w"},
    schema.Specimen: {4: "n h w c -> n c h w"},
    schema.Transformer: {2: "n t -> t n", 3: "n t d -> t n d"},
}


def own(array: np.ndarray, model: schema.Model) -> np.ndarray:
    """Convert an input or target from PyTorch's axis order to that of the Keras model."""
    pattern = LAYOUTS.get(type(model), {}).get(array.ndim)
    return rearrange(array, " -> ".join(reversed(pattern.split(" -> ")))) if pattern else array


class Replica(NamedTuple):
    """One replica of the model; `copy_index` is its index among the copies of the variables in this process."""

    recorder: Recorder
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    copy_index: int


class Handed(NamedTuple):
    """A tensor that is handed over.

    `token` identifies it within the forward pass; `known` says that the same one was handed over before.
    """

    kind: str
    name: str
    token: int
    known: bool

    @property
    def is_alias(self) -> bool:
        """Return whether the values are left out, as for a layer's input that is another layer's output."""
        return self.known and self.kind == "input"


class Replicas:
    """The replicas that this process records, by number."""

    def __init__(self, replicas: dict[int, Replica], case: schema.Case):
        self.by_number = replicas
        self.layouts = LAYOUTS.get(type(case.model), {})
        self.mean = case.loss.reduction == "mean"
        # nn.DataParallel, the counterpart, has parameters on device 0 only, and a single loss for the whole batch.
        self.gathered = case.distribution.is_gathered
        self._first: dict[str, np.ndarray] = {}  # replica 0's gradients of this step
        self._losses: dict[int, list[Sequence[np.ndarray]]] = defaultdict(list)
        self._keys: dict[tuple[int, int], str] = {}  # by replica and token

    def receive(self, number: int, handed: Sequence[Handed], arrays: Sequence[np.ndarray]) -> None:
        """Record tensors of one replica; either all of them are wanted or none."""
        recorder = self.by_number[number].recorder
        if not recorder.wants(handed[0].kind):
            return
        if handed[0].kind == "loss" and self.gathered:
            self._gather(number, arrays)
            return
        values = iter(arrays)
        for item in handed:
            if not item.is_alias:
                self._add(number, item, next(values))
            elif key := self._keys.get((number, item.token)):
                recorder.alias(item.kind, item.name, key)

    def _add(self, number: int, item: Handed, array: np.ndarray) -> None:
        recorder = self.by_number[number].recorder
        pattern = None if item.kind == "gradient" else self.layouts.get(array.ndim)
        if item.kind == "gradient" and self._is_known(number, item.name, array):
            recorder.same(item.kind, item.name)
            return
        key = recorder.add(item.kind, item.name, rearrange(array, pattern) if pattern else array)
        if key and not item.known:
            self._keys[number, item.token] = key

    def end_step(self) -> None:
        """Record the state of every replica; called before the first step and after each update."""
        first: dict[str, weights.Value] = {}
        for number, replica in self.by_number.items():
            if number == 0 or not self.gathered:
                self._record_state(replica, first)
            replica.recorder.next_step()
        self._first.clear()
        self._keys.clear()

    def _record_state(self, replica: Replica, first: dict[str, weights.Value]) -> None:
        """Record parameters, buffers and optimizer state of a replica.

        `first` holds the values of the first replica, and is filled by it.
        """
        recorder, model, optimizer, copy_index = replica
        kinds = {
            "parameter": weights.parameters(model, copy_index),
            "buffer": weights.buffers(model, copy_index),
            "optimizer_state": weights.optimizer_state(model, optimizer, copy_index),
        }
        for kind, values in kinds.items():
            for value in values if recorder.wants(kind) else ():
                first_value = first.setdefault(f"{kind}/{value.name}", value)
                if first_value is not value and first_value.equals(value):
                    recorder.same(kind, value.name)
                else:
                    recorder.add(kind, value.name, value.numpy())

    def _is_known(self, number: int, name: str, array: np.ndarray) -> bool:
        """Return whether this gradient is bitwise equal to the first replica's in this step."""
        if len(self.by_number) == 1:
            return False
        if number == 0:
            self._first[name] = array
            return False
        return weights.same_bits(self._first[name], array)

    def _gather(self, number: int, value_and_samples: Sequence[np.ndarray]) -> None:
        """Record the loss of the whole batch, once the losses of all replicas have come."""
        self._losses[number].append(value_and_samples)
        if len(self._losses) == len(self.by_number) and all(self._losses.values()):
            values, samples = zip(*(self._losses[replica].pop(0) for replica in self.by_number), strict=True)
            whole = np.average(values, weights=samples) if self.mean else np.sum(values)
            self.by_number[0].recorder.add("loss", "loss", whole.astype(values[0].dtype))
