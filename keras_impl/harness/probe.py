"""Records what a training loop does, from outside: wrapped calls of layers, optimizer and loss.

The loop is compiled, so that a wrapper runs once, while the step is traced: it puts an op into the
graph that hands the tensors to the recorder on every execution (tf.numpy_function). Each replica of
the model is traced by itself, and has a recorder of its own.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.harness import devices, partitions, weights
from keras_impl.harness.partitions import Watch
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel
from parity.config import schema
from parity.trace.recorder import Recorder

OUTPUT = "(model)"  # the name of the whole model's result; no attribute can have it

# From a model's axis order to PyTorch's, by the number of axes of the tensor.
LAYOUTS: dict[type, dict[int, str]] = {
    schema.ResidualBlock: {4: "n h w c -> n c h w"},
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


class Probe:
    """Attached to built replicas and their optimizers for the rest of their lives."""

    def __init__(self, replicas: dict[int, Replica], case: schema.Case, watch: Watch):
        self.replicas, self.case, self.watch = replicas, case, watch
        self.layouts = LAYOUTS.get(type(case.model), {})
        # nn.DataParallel has parameters on device 0 alone, and one loss over the whole batch.
        self.gathered = case.strategy == "data_parallel"
        self.local = case.replicas > 1 or case.clip_norm is not None
        self._owner = next(iter(replicas))
        self._seen: dict[int, list[tuple[str, tf.Tensor]]] = defaultdict(list)
        self._first: dict[str, np.ndarray] = {}
        self._losses: dict[int, list[Sequence[np.ndarray]]] = defaultdict(list)
        for number, replica in {id(replica.model): (number, replica) for number, replica in replicas.items()}.values():
            self._attach(number, replica)

    def loss(self, loss: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """The loss, its values recorded."""

        def watched(outputs: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            value = loss(outputs, target)
            self._flush()
            if self.gathered:
                self._emit("loss", [("loss", value), ("samples", tf.shape(target)[0])])
                return value
            # fit hands class ids over as floats.
            ids = self.case.loss.kind == "cross_entropy"
            self._emit("input", [("target", tf.cast(target, tf.int64) if ids else target)])
            self._emit("loss", [("loss", value)])
            return value

        return watched

    def on_step(self) -> None:
        """After an update (and once before the first): the state of every replica."""
        if self.watch.watching:
            self.watch.stop()
        first: dict[str, weights.Value] = {}
        for number, replica in self.replicas.items():
            if number == 0 or not self.gathered:
                self._record_state(replica, first)
            replica.recorder.next_step()

    def reduction(self, all_reduce: Callable[..., Any]) -> Callable[..., Any]:
        """A strategy's own all_reduce, of gradients or of all chains' gradients: what goes in is recorded."""

        def watched(*args: Any) -> Any:
            *chains, gradients = args
            if chains:
                for number, (chain, stages) in enumerate(zip(chains[0], gradients, strict=True)):
                    self._gradients(number, itertools.chain(*stages), chain.variables, "@local")
            else:
                number = self._here()
                self._gradients(number, gradients, self.replicas[number].model.trainable_variables, "@local")
            return all_reduce(*args)

        return watched

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

    def _attach(self, number: int, replica: Replica) -> None:
        for path, layer in weights.named_layers(replica.model):
            if isinstance(layer, ColumnParallel):
                for i, shard in enumerate(layer.shards):
                    shard.call = self._on_call(number, f"{path}@shard{i}", shard.call)
            else:
                layer.call = self._on_call(number, path, layer.call)
            if isinstance(layer, RowParallel):
                for shard in layer.shards:
                    shard.call = _within(path, shard.call)
        replica.optimizer.apply = self._on_apply(replica, replica.optimizer.apply)
        reduce = replica.optimizer._all_reduce_sum_gradients
        replica.optimizer._all_reduce_sum_gradients = self._on_reduced(number, reduce)

    def _on_call(self, number: int, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The activations of one forward are handed over together, when the whole model returns."""
        recorded = self._is_recorded(path)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._owner = number
            if not path:
                self._emit("input", [("input", tensor) for tensor in tf.nest.flatten(args[0])])
            outputs = _within(path.partition("@")[0], call)(*args, **kwargs)
            if recorded:
                self._seen[self._here()] += [(path or OUTPUT, tensor) for tensor in tf.nest.flatten(outputs)]
            if not path or tf.executing_eagerly():
                self._flush()
            return outputs

        return watched

    def _is_recorded(self, path: str) -> bool:
        between = self.case.strategy == "tensor_parallel" and path.rpartition(".")[2] in ("relu", "dropout")
        return not between and not (self.gathered and not path)

    def _on_apply(self, replica: Replica, apply: Callable[..., None]) -> Callable[..., None]:
        def watched(gradients: list[tf.Tensor], variables: list[keras.Variable] | None = None) -> None:
            self._applied = replica.model.trainable_variables if variables is None else variables
            if self.local and self.case.strategy not in ("all_reduce", "hybrid"):  # they reduce by themselves
                self._gradients(self._here(), gradients, self._applied, "@local")
            apply(gradients, variables)

        return watched

    def _on_reduced(self, number: int, reduce: Callable[..., list]) -> Callable[..., list]:
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
        pairs = zip(gradients, variables, strict=True)
        values = {id(variable): tf.convert_to_tensor(gradient) for gradient, variable in pairs if gradient is not None}
        with tf.name_scope(f"{partitions.RECORDING}/"):
            named = [
                (name + suffix, tensor) for name, tensor in weights.gradients(self.replicas[number].model, values)
            ]
        self._emit("gradient", named, number)

    def _here(self) -> int:
        """The replica whose code runs, or is traced."""
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            return int(tf.get_static_value(context.replica_id_in_sync_group))
        return self._owner

    def _flush(self) -> None:
        self._emit("activation", self._seen.pop(self._here(), []))

    def _emit(self, kind: str, named: list[tuple[str, tf.Tensor]], number: int | None = None) -> None:
        """Record tensors now, or in a graph whenever it is executed, each where it is."""
        number = self._here() if number is None else number
        if tf.executing_eagerly():
            self._receive(number, kind, [name for name, _ in named], [tensor.numpy() for _, tensor in named])
            return
        for device, group in itertools.groupby(named, lambda pair: devices.host(pair[1].device)):
            names, tensors = zip(*group, strict=True)
            self.watch.see(tensors[0])
            with tf.name_scope(f"{partitions.RECORDING}/"), tf.device(device):
                tf.numpy_function(
                    lambda *arrays, names=names: self._receive(number, kind, names, arrays), tensors, [], stateful=True
                )

    def _receive(self, number: int, kind: str, names: Sequence[str], arrays: Sequence[np.ndarray]) -> None:
        recorder = self.replicas[number].recorder
        if not recorder.wants(kind):
            return
        if kind == "loss" and self.gathered:
            self._gather(number, arrays)
            return
        for name, array in zip(names, arrays, strict=True):
            pattern = None if kind == "gradient" else self.layouts.get(array.ndim)
            if kind == "gradient" and self._is_known(number, name, array):
                recorder.same(kind, name)
            else:
                recorder.add(kind, name, rearrange(array, pattern) if pattern else array)

    def _is_known(self, number: int, name: str, array: np.ndarray) -> bool:
        """Whether this gradient, bit by bit, has been stored for the first replica in this step."""
        if len(self.replicas) == 1:
            return False
        if number == 0:
            self._first[name] = array
            return False
        return weights.same_bits(self._first[name], array)

    def _gather(self, number: int, value_and_samples: Sequence[np.ndarray]) -> None:
        """The loss of the whole batch, from those of the replicas' parts."""
        self._losses[number].append(value_and_samples)
        if len(self._losses) == len(self.replicas) and all(self._losses.values()):
            values, samples = zip(*(self._losses[replica].pop(0) for replica in self.replicas), strict=True)
            mean = self.case.loss.reduction == "mean"
            whole = np.average(values, weights=samples) if mean else np.sum(values)
            self.replicas[0].recorder.add("loss", "loss", whole.astype(values[0].dtype))


def _within(path: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call in the name scope of its module."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if not path:
            return call(*args, **kwargs)
        with tf.name_scope(partitions.scope(path)):
            return call(*args, **kwargs)

    return called
