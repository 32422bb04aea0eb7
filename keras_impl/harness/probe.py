"""The probe: records what a training loop does from outside, by wrapped calls of layers, optimizer and loss.

The training step is a tf.function, so a wrapper runs only once, while the step is traced. It adds an op to the graph
that hands the tensors to the recorder in every execution (tf.numpy_function). Each replica of the model is traced
separately and has a recorder of its own.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_impl.harness import kinds, weights
from keras_impl.harness.layout_recorder import LayoutRecorder
from keras_impl.harness.replicas import Handed, Replica, Replicas
from keras_impl.instruments import devices, partitions
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel, SplitDropout
from parity.config import schema
from parity.core.names import MODEL
from parity.trace.recorder import FORWARD

BETWEEN = ("relu", "dropout")  # in tensor_parallel each device has only a part of these activations: not compared
SPLIT = ("linear1", "linear2")  # in tensor_parallel their inputs are parts, or a copy on each device: not recorded


class _Seen(NamedTuple):
    """A tensor to record, with the kind and name of its record."""

    kind: str
    name: str
    tensor: tf.Tensor


class Probe:
    """Records built replicas and their optimizers for as long as they live."""

    def __init__(self, replicas: dict[int, Replica], case: schema.Case, layout_recorder: LayoutRecorder):
        self.replicas, self.case, self.layout_recorder = replicas, case, layout_recorder
        self.sink = Replicas(replicas, case)
        self.gathered = self.sink.gathered
        self.sharded = case.distribution.is_sharded
        self.local = case.replicas > 1 or case.clip_norm is not None
        self._owner = next(iter(replicas))
        self.modules: dict[str, str] = {}  # kind of each layer that has been called, by path
        self._seen: dict[int, list[_Seen]] = defaultdict(list)
        # By replica, the tensors recorded in this forward pass by their ids; while held, no id can be used again.
        self._held: dict[int, dict[int, tf.Tensor]] = defaultdict(dict)
        for number, replica in {id(replica.model): (number, replica) for number, replica in replicas.items()}.values():
            self._attach(number, replica)

    def loss(self, loss: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """Wrap the loss so that the target and the loss value are recorded."""

        def watched(outputs: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            value = loss(outputs, target)
            self._flush()
            self._held.pop(self._here(), None)  # the forward pass is over
            if self.gathered:
                self._emit([_Seen("loss", "loss", value), _Seen("loss", "samples", tf.shape(target)[0])])
                return value
            # fit passes class ids as floats; record them as the integers that they are on the other side.
            is_class_ids = self.case.loss.kind == "cross_entropy"
            self._emit([_Seen("input", "target", tf.cast(target, tf.int64) if is_class_ids else target)])
            self._emit([_Seen("loss", "loss", value)])
            return value

        return watched

    def on_step(self) -> None:
        """Record the state of every replica; called before the first step and after each update."""
        if self.layout_recorder.recording:
            self.layout_recorder.stop()
        self._held.clear()
        self.sink.end_step()

    def reduction(self, all_reduce: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a strategy's own all_reduce so that the gradients that enter it are recorded.

        Its arguments are the gradients of the replica that calls it, or the chains of stages of all replicas and their
        gradients.
        """

        def watched(*args: Any) -> Any:
            *chains, gradients = args
            if not self.local:
                return all_reduce(*args)
            if chains:
                for number, (chain, stages) in enumerate(zip(chains[0], gradients, strict=True)):
                    self._gradients(number, itertools.chain(*stages), chain.variables, "@local")
            else:
                number = self._here()
                self._gradients(number, gradients, self.replicas[number].model.trainable_variables, "@local")
            return all_reduce(*args)

        return watched

    def _attach(self, number: int, replica: Replica) -> None:
        """Wrap the calls of all recorded layers, and the optimizer's apply and reduction."""
        named = list(weights.named_layers(replica.model))
        owners = {path.rpartition(".")[0] for path, _ in named}
        for path, layer in named:
            if isinstance(layer, ColumnParallel):
                for i, shard in enumerate(layer.shards):
                    shard.call = self._on_call(number, f"{path}@shard{i}", shard)
            else:
                layer.call = self._on_call(number, path, layer, path not in owners)
            if isinstance(layer, (RowParallel, SplitDropout)):
                for shard in layer.shards:
                    shard.call = _within(path, shard.call)
        replica.optimizer.apply = self._on_apply(replica, replica.optimizer.apply)
        reduce = replica.optimizer._all_reduce_sum_gradients
        replica.optimizer._all_reduce_sum_gradients = self._on_reduced(number, reduce)

    def _on_call(self, number: int, path: str, layer: keras.Layer, leaf: bool = True) -> Callable[..., Any]:
        """Wrap a layer's call so that its inputs and outputs are recorded.

        All tensors of one forward pass are handed to the recorder together, when the whole model returns.
        """
        recorded, takes, call = self._is_recorded(path), self._takes(path), layer.call
        module, kind = path.partition("@")[0], kinds.kind(layer)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._owner = number
            if not path:
                self._see("input", "input", tf.nest.flatten(args[0]))
            elif takes:
                self._see("input", path, kinds.arguments(layer, args, leaf))
            outputs = _within(module, call)(*args, **kwargs)
            if recorded:
                self._see("activation", path or MODEL, tf.nest.flatten(outputs))
            if recorded and module:
                self.modules[module] = kind
            if not path or tf.executing_eagerly():
                self._flush()
            return outputs

        return watched

    def _see(self, kind: str, name: str, tensors: list[tf.Tensor]) -> None:
        self._seen[self._here()] += [_Seen(kind, name, tensor) for tensor in tensors]

    def _is_recorded(self, path: str) -> bool:
        between = self.sharded and path.rpartition(".")[2] in BETWEEN
        return not between and not (self.gathered and not path)

    def _takes(self, path: str) -> bool:
        """Return whether a layer's input is a whole tensor, rather than a part of one."""
        name = path.rpartition(".")[2].partition("@")[0]
        return not (self.sharded and name in (*BETWEEN, *SPLIT))

    def _on_apply(self, replica: Replica, apply: Callable[..., None]) -> Callable[..., None]:
        """Wrap the optimizer's apply to record the gradients of each replica before they are reduced."""

        def watched(gradients: list[tf.Tensor], variables: list[keras.Variable] | None = None) -> None:
            self._applied = replica.model.trainable_variables if variables is None else variables
            if self.local and not self.case.distribution.reduces_itself:  # else `reduction` records them
                self._gradients(self._here(), gradients, self._applied, "@local")
            apply(gradients, variables)

        return watched

    def _on_reduced(self, number: int, reduce: Callable[..., list]) -> Callable[..., list]:
        """Wrap the optimizer's reduction over replicas to record its result, which is applied."""

        def watched(pairs: list[tuple[tf.Tensor, tf.Variable]]) -> list:
            reduced = list(reduce(pairs))
            self._owner = number
            if self._here() == 0 or not self.gathered:
                self._gradients(self._here(), [gradient for gradient, _ in reduced], self._applied, "")
            return reduced

        return watched

    def _gradients(
        self, number: int, gradients: Iterable[tf.Tensor], variables: list[keras.Variable], suffix: str
    ) -> None:
        """Record gradients under the canonical names of the variables, with a suffix."""
        pairs = zip(gradients, variables, strict=True)
        values = {id(variable): tf.convert_to_tensor(gradient) for gradient, variable in pairs if gradient is not None}
        with tf.name_scope(f"{partitions.RECORDING}/"):
            named = list(weights.gradients(self.replicas[number].model, values))
        self._emit([_Seen("gradient", name + suffix, tensor) for name, tensor in named], number)

    def _here(self) -> int:
        """Return the number of the replica whose code is running or being traced."""
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            return int(tf.get_static_value(context.replica_id_in_sync_group))
        return self._owner

    def _flush(self) -> None:
        self._emit(self._seen.pop(self._here(), []))

    def _emit(self, seen: list[_Seen], number: int | None = None) -> None:
        """Record tensors, grouped by the device from which they can be handed over."""
        number = self._here() if number is None else number
        for device, group in itertools.groupby(seen, lambda entry: devices.host(entry.tensor.device)):
            self._hand_over(number, device, list(group))

    def _hand_over(self, number: int, device: str, group: list[_Seen]) -> None:
        """Hand tensors to the recorder: at once if eager, else by an op that does so in every execution."""
        handed = [Handed(entry.kind, entry.name, id(entry.tensor), self._is_known(number, entry)) for entry in group]
        tensors = [entry.tensor for entry, item in zip(group, handed, strict=True) if not item.is_alias]
        if tf.executing_eagerly():
            self.sink.receive(number, handed, [tensor.numpy() for tensor in tensors])
            return
        self.layout_recorder.note_graph(group[0].tensor)
        with tf.name_scope(f"{partitions.RECORDING}/"), tf.device(device):
            tf.numpy_function(lambda *arrays: self.sink.receive(number, handed, arrays), tensors, [], stateful=True)

    def _is_known(self, number: int, seen: _Seen) -> bool:
        """Return whether the tensor was recorded in this forward pass already, and remember it from now on."""
        held = self._held[number]
        is_known = id(seen.tensor) in held
        if seen.kind in FORWARD:
            held[id(seen.tensor)] = seen.tensor
        return is_known


def _within(path: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a layer's call so that it runs in the name scope of its module."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if not path:
            return call(*args, **kwargs)
        with tf.name_scope(partitions.scope(path)):
            return call(*args, **kwargs)

    return called
