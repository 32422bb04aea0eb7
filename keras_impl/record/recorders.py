"""The recorders of a process: of the layout in one training step, and of the replicas' tensors.

The layout is on which devices the step ran, as TensorFlow reports it, and where the state lies. The probe hands its
tensors to the replicas' recorders, which store them in canonical form. A later replica's tensor that is bitwise equal
to the first replica's is only noted as the same.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange
from tensorflow.python.eager import context  # the run metadata of functions have no public API

from keras_impl.instruments import devices, partitions
from keras_impl.record import tree
from keras_impl.record.canonical import LAYOUTS, Handed, Replica, Seen, module_path
from keras_impl.record.weights import Value, array, same_bits
from keras_impl.strategies import send_recv
from keras_impl.strategies.tensor_parallel import RowParallel, SplitDropout
from parity.config import schema
from parity.core.patches import wrapping
from parity.runtime import drive
from parity.trace.layout import Held, Layout, shards


class LayoutRecorder:
    """Records what TensorFlow runs between `start` and `stop`."""

    def __init__(self, devices_per_replica: int):
        self.devices_per_replica = devices_per_replica
        self.recording = False
        self.evidence: dict[str, Any] = {}
        self.traced: dict[int, tf.Graph] = {}  # the graphs that are being traced: they alone know the shapes of tensors

    def start(self) -> None:
        context.context().enable_run_metadata()
        # Discard what was executed since the last export; TensorFlow collects it even while this is disabled.
        context.context().export_run_metadata()
        self.recording = True

    def scope(self, model: keras.Model) -> None:
        """Let the ops of every layer of a built-in model be traced in a name scope of its module."""
        layers = [*tree.called(model).items()]
        for path, layer in tree.named(model).items():
            if isinstance(layer, (RowParallel, SplitDropout)):
                layers += [(path, shard) for shard in layer.shards]
        for path, layer in layers:
            if path:
                layer.call = wrapping(_scoped, layer.call, module_path(path.partition("@")[0]))

    def stop(self) -> None:
        """Stop recording, and read the report of the step, as TensorFlow reports only a function's first execution."""
        ran = context.context().export_run_metadata().function_graphs
        context.context().disable_run_metadata()
        self.recording = False
        # Among the executed functions (tf.data has some as well), the training step is the one with the probe's ops.
        (step,) = (function.partition_graphs for function in ran if partitions.recorded(function.partition_graphs))
        executed = partitions.Partitions(step, list(self.traced.values()), send_recv.FROM_HOST)
        self.evidence = executed.evidence(self.devices_per_replica)
        self.traced.clear()

    def layout(self, case: schema.Case, replicas: Iterable[Replica]) -> Layout:
        """Return what was recorded, with the devices that hold each replica's state."""
        parameters: dict[str, Held] = {}
        slots: dict[str, Held] = {}
        for replica in {id(replica.model): replica for replica in replicas}.values():
            for found, known in zip(replica.weights.held(), (parameters, slots), strict=True):
                for name, held in found.items():
                    before = known.get(name, Held([], held.whole))
                    known[name] = Held(before.pieces + held.pieces, held.whole)
        names = devices.physical(case.devices)
        return Layout(
            devices=names,
            parameters={name: held.devices for name, held in parameters.items()},
            optimizer_state={name: held.devices for name, held in slots.items()},
            shards=shards(parameters | slots, len(names)),
            **self.evidence,
            replicas=case.replicas,
        )


def _scoped(call: Callable[..., Any], path: str, /, *args: Any, **kwargs: Any) -> Any:
    with tf.name_scope(partitions.scope(path)):
        return call(*args, **kwargs)


class Replicas(drive.Replicas):
    """The replicas that this process records, by number.

    nn.DataParallel, the counterpart of those that are gathered, has parameters on device 0 only, and a single loss for
    the whole batch.
    """

    def __init__(self, replicas: dict[int, Replica], case: schema.Case, layout_recorder: LayoutRecorder):
        super().__init__(case)
        self.by_number, self.layout_recorder = replicas, layout_recorder
        self.first = next(iter(replicas.values())).recorder  # the recorder of what is recorded once per process
        self.layouts = LAYOUTS.get(type(case.model), {})
        self.mean = case.loss.reduction == "mean"
        self._first: dict[str, np.ndarray] = {}  # replica 0's gradients of this step
        self._losses: dict[int, list[Sequence[np.ndarray]]] = defaultdict(list)
        self._keys: dict[tuple[int, int], str] = {}  # by replica and token
        # By replica, the tensors recorded in this forward pass by their ids; while held, no id can be used again.
        self._held: dict[int, dict[int, Seen]] = defaultdict(dict)

    def hand_over(self, number: int, seen: list[Seen], passed: bool = False) -> None:
        """Record tensors of a replica: at once if eager, else by ops on the devices from which that is possible.

        Tensors that are `passed` from layer to layer are handed over once, though they may be seen again.
        """
        if not tf.executing_eagerly():
            for device, group in itertools.groupby(seen, lambda entry: devices.host(entry.tensor.device)):
                self._hand_over_later(number, device, list(group), passed)
        elif seen and self.by_number[number].recorder.wants(seen[0].kind):
            for entries in [[entry] for entry in seen] if passed else [seen]:
                handed, tensors = self._handed(number, entries, passed)
                self._receive(number, handed, [array(tensor) for tensor in tensors])

    def end_forward(self, number: int) -> None:
        """End a replica's forward pass: a tensor that is seen from now on is another one."""
        self._held.pop(number, None)

    def _hand_over_later(self, number: int, device: str, group: list[Seen], passed: bool) -> None:
        """Add an op that hands tensors over in every execution."""
        handed, tensors = self._handed(number, group, passed)
        graph = group[0].tensor.graph
        self.layout_recorder.traced[id(graph)] = graph
        with tf.name_scope(f"{partitions.RECORDING}/"), tf.device(device):
            tf.numpy_function(lambda *arrays: self._receive(number, handed, arrays), tensors, [], stateful=True)

    def _handed(self, number: int, seen: list[Seen], passed: bool) -> tuple[list[Handed], list[Any]]:
        """Return what is said of tensors that are handed over, and those of them whose values are."""
        handed = [self._described(number, entry, passed) for entry in seen]
        return handed, [entry.tensor for entry, item in zip(seen, handed, strict=True) if not item.is_alias]

    def _described(self, number: int, seen: Seen, passed: bool) -> Handed:
        """Return what is said of a tensor that is handed over, and remember it for this forward pass.

        An input that was recorded in this forward pass already, in the same form, is an alias of that record.
        """
        token, held = id(seen.tensor), self._held[number]
        first = held.get(token) if passed else None
        if first is not None and tf.executing_eagerly() and (number, token) not in self._keys:
            first = None
        if first is None and passed:
            held[token] = seen
        is_alias = first is not None and seen.kind == "input" and first.form == seen.form
        return Handed(seen.kind, seen.name, seen.form, token, first is not None or not passed, is_alias)

    def _receive(self, number: int, handed: Sequence[Handed], arrays: Sequence[np.ndarray]) -> None:
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
        if item.kind == "gradient" and self._is_known(number, item.name, array):
            recorder.same(item.kind, item.name)
            return
        key = recorder.add(item.kind, item.name, self._canonical(item, array))
        if key and not item.known:
            self._keys[number, item.token] = key

    def _canonical(self, item: Handed, array: np.ndarray) -> np.ndarray:
        """Convert a tensor to PyTorch's axis order; gradients are in it already."""
        if item.form is not None:
            return array.transpose(item.form.axes).reshape(item.form.shape)
        pattern = None if item.kind == "gradient" else self.layouts.get(array.ndim)
        return rearrange(array, pattern) if pattern else array

    def end_step(self) -> None:
        """Record the state of every replica; called before the first step and after each update."""
        first: dict[str, Value] = {}
        for number, replica in self.by_number.items():
            is_recorded = number == 0 or not self.gathered
            for kind, value in replica.weights.state(replica.recorder.wants) if is_recorded else ():
                first_value = first.setdefault(f"{kind}/{value.name}", value)
                if first_value is not value and first_value.equals(value):
                    replica.recorder.same(kind, value.name)
                else:
                    replica.recorder.add(kind, value.name, value.numpy())
            replica.recorder.next_step()
        self._first.clear()
        self._keys.clear()
        self._held.clear()

    def _is_known(self, number: int, name: str, gradient: np.ndarray) -> bool:
        """Return whether this gradient is bitwise equal to the first replica's in this step."""
        if len(self.by_number) == 1:
            return False
        if number == 0:
            self._first[name] = gradient
            return False
        return same_bits(self._first[name], gradient)

    def _gather(self, number: int, value_and_samples: Sequence[np.ndarray]) -> None:
        """Record the loss of the whole batch, once the losses of all replicas have come."""
        self._losses[number].append(value_and_samples)
        if len(self._losses) == len(self.by_number) and all(self._losses.values()):
            values, samples = zip(*(self._losses[replica].pop(0) for replica in self.by_number), strict=True)
            whole = np.average(values, weights=samples) if self.mean else np.sum(values)
            self.by_number[0].recorder.add("loss", "loss", whole.astype(values[0].dtype))
