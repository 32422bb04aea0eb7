"""What the probe hands its tensors to: the replicas' recorders, in canonical form.

A tensor of a later replica that is bit by bit the first one's is only noted.
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

# From a model's axis order to PyTorch's, by the number of axes of the tensor.
LAYOUTS: dict[type, dict[int, str]] = {
    schema.ResidualBlock: {4: "n h w c -> n c h w"},
    schema.Specimen: {4: "n h w c -> n c h w"},
    schema.Transformer: {2: "n t -> t n", 3: "n t d -> t n d"},
}


def own(array: np.ndarray, model: schema.Model) -> np.ndarray:
    """An input or a target, which comes in PyTorch's axis order, in that of the Keras model."""
    pattern = LAYOUTS.get(type(model), {}).get(array.ndim)
    return rearrange(array, " -> ".join(reversed(pattern.split(" -> ")))) if pattern else array


class Replica(NamedTuple):
    """One replica of the model: `place` is its number among those that its variables have copies for."""

    recorder: Recorder
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    place: int


class Handed(NamedTuple):
    """A tensor that is handed over. `known`: it was before in this forward pass, as the same `token`."""

    kind: str
    name: str
    token: int
    known: bool

    @property
    def is_alias(self) -> bool:
        """Whether its values do not come along: what goes into a module often came out of another."""
        return self.known and self.kind == "input"


class Replicas:
    """Those of which this process records something, by number."""

    def __init__(self, replicas: dict[int, Replica], case: schema.Case):
        self.by_number = replicas
        self.layouts = LAYOUTS.get(type(case.model), {})
        self.mean = case.loss.reduction == "mean"
        # nn.DataParallel has parameters on device 0 alone, and one loss over the whole batch.
        self.gathered = case.strategy == "data_parallel"
        self._first: dict[str, np.ndarray] = {}  # replica 0's gradients of this step
        self._losses: dict[int, list[Sequence[np.ndarray]]] = defaultdict(list)
        self._keys: dict[tuple[int, int], str] = {}  # by replica and token

    def receive(self, number: int, handed: Sequence[Handed], arrays: Sequence[np.ndarray]) -> None:
        """What happened in a replica during a step: one part of it, all recorded or none."""
        recorder = self.by_number[number].recorder
        if not recorder.wants(handed[0].kind):
            return
        if handed[0].kind == "loss" and self.gathered:
            self._gather(number, arrays)
            return
        values = iter(arrays)
        for one in handed:
            if not one.is_alias:
                self._add(number, one, next(values))
            elif key := self._keys.get((number, one.token)):
                recorder.alias(one.kind, one.name, key)

    def _add(self, number: int, one: Handed, array: np.ndarray) -> None:
        recorder = self.by_number[number].recorder
        pattern = None if one.kind == "gradient" else self.layouts.get(array.ndim)
        if one.kind == "gradient" and self._is_known(number, one.name, array):
            recorder.same(one.kind, one.name)
            return
        key = recorder.add(one.kind, one.name, rearrange(array, pattern) if pattern else array)
        if key and not one.known:
            self._keys[number, one.token] = key

    def end_step(self) -> None:
        """After an update (and once before the first): the state of every replica."""
        first: dict[str, weights.Value] = {}
        for number, replica in self.by_number.items():
            if number == 0 or not self.gathered:
                self._record_state(replica, first)
            replica.recorder.next_step()
        self._first.clear()
        self._keys.clear()

    def _record_state(self, replica: Replica, first: dict[str, weights.Value]) -> None:
        """`first`: the values of the first replica, which fills it."""
        recorder, model, optimizer, place = replica
        kinds = {
            "parameter": weights.parameters(model, place),
            "buffer": weights.buffers(model, place),
            "optimizer_state": weights.optimizer_state(model, optimizer, place),
        }
        for kind, values in kinds.items():
            for value in values if recorder.wants(kind) else ():
                held = first.setdefault(f"{kind}/{value.name}", value)
                if held is not value and held.equals(value):
                    recorder.same(kind, value.name)
                else:
                    recorder.add(kind, value.name, value.numpy())

    def _is_known(self, number: int, name: str, array: np.ndarray) -> bool:
        """Whether this gradient, bit by bit, has been stored for the first replica in this step."""
        if len(self.by_number) == 1:
            return False
        if number == 0:
            self._first[name] = array
            return False
        return weights.same_bits(self._first[name], array)

    def _gather(self, number: int, value_and_samples: Sequence[np.ndarray]) -> None:
        """The loss of the whole batch, from those of the replicas' parts."""
        self._losses[number].append(value_and_samples)
        if len(self._losses) == len(self.by_number) and all(self._losses.values()):
            values, samples = zip(*(self._losses[replica].pop(0) for replica in self.by_number), strict=True)
            whole = np.average(values, weights=samples) if self.mean else np.sum(values)
            self.by_number[0].recorder.add("loss", "loss", whole.astype(values[0].dtype))
