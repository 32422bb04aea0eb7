"""The layout recorder: on which devices one training step ran, as TensorFlow reports it, and where the state lies."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager import context  # the run metadata of functions have no public API

from keras_impl.instruments import devices, partitions
from keras_impl.record import tree
from keras_impl.record.canonical import Replica, module_path
from keras_impl.strategies import send_recv
from keras_impl.strategies.tensor_parallel import RowParallel, SplitDropout
from parity.config import schema
from parity.trace.layout import Held, Layout, shards


class LayoutRecorder:
    """Records what TensorFlow runs between `start` and `stop`."""

    def __init__(self, devices_per_replica: int):
        self.devices_per_replica = devices_per_replica
        self.recording = False
        self.evidence = partitions.Evidence({}, {}, [], {})
        self._traced: dict[int, tf.Graph] = {}

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
                layer.call = _scoped(module_path(path.partition("@")[0]), layer.call)

    def note_graph(self, tensor: tf.Tensor) -> None:
        """Remember the graph that is being traced, because only it knows the shapes of tensors."""
        self._traced[id(tensor.graph)] = tensor.graph

    def stop(self) -> None:
        """Stop recording, and read the report of what was executed.

        TensorFlow reports the first execution of a function only, so a single step is recorded.
        """
        ran = context.context().export_run_metadata().function_graphs
        context.context().disable_run_metadata()
        self.recording = False
        # Among the executed functions (tf.data has some as well), the training step is the one with the probe's ops.
        (step,) = (function.partition_graphs for function in ran if partitions.recorded(function.partition_graphs))
        executed = partitions.Partitions(step, list(self._traced.values()), send_recv.FROM_HOST)
        self.evidence = executed.evidence(self.devices_per_replica)
        self._traced.clear()

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
            **self.evidence._asdict(),
            replicas=case.replicas,
        )


def _scoped(path: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        with tf.name_scope(partitions.scope(path)):
            return call(*args, **kwargs)

    return scoped
