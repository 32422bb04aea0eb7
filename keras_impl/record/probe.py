"""The probe: records what a model does from outside, by wrapped calls of layers, optimizer and loss.

The model is a built-in case's, which a strategy trains, or a user's, whose passes are run one by one.

A built-in case's training step is a tf.function, so a wrapper runs only once, while the step is traced. It adds an op
to the graph that hands the tensors to the recorder in every execution (tf.numpy_function). Each replica of the model is
traced separately and has a recorder of its own.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_impl.instruments import devices, partitions
from keras_impl.record import calls, tree
from keras_impl.record.canonical import Replica, Seen, module_path
from keras_impl.record.pair.layers import Counterparts
from keras_impl.record.pair.optimizers import Gradients
from keras_impl.record.recorders import LayoutRecorder, Replicas
from parity.config import schema
from parity.core.patches import Original, calling
from parity.trace import keys


class Probe:
    """Records the runs of built replicas.

    `modules` holds the kinds of the layers that were called, by torch's path; `classes` the classes of all layers. Of a
    user's model those layers are recorded that have `counterparts` in torch's model, and no classes.
    """

    def __init__(
        self,
        replicas: dict[int, Replica],
        case: schema.Case,
        layout_recorder: LayoutRecorder,
        counterparts: Counterparts | None = None,
    ):
        self.case, self.layout_recorder, self.counterparts = case, layout_recorder, counterparts
        self.replicas = Replicas(replicas, case, layout_recorder)
        self.modules: dict[str, str] = {}
        self.classes: dict[str, str] = {}
        self._leaves: set[str] = set()
        self._owner = next(iter(replicas))
        self._seen: dict[int, list[Seen]] = defaultdict(list)

    def attach(self) -> None:
        """Record every call from now on, and what the optimizers of a built-in case's replicas apply and reduce."""
        distinct = {id(replica.model): (number, replica) for number, replica in self.replicas.by_number.items()}
        for number, replica in distinct.values():
            self._leaves |= tree.leaves(replica.model)
            if not self.counterparts:
                self.layout_recorder.scope(replica.model)
                layers = tree.called(replica.model).items()
                self.classes |= {module_path(path): type(layer).__name__ for path, layer in layers if "@" not in path}
            modules = tree.inner(replica.model) if self.counterparts else tree.called(replica.model)
            calls.observed(modules, functools.partial(self._on_call, number), self._on_return)
            if replica.optimizer is not None:
                replica.optimizer.apply = calling(self._apply, replica, replica.optimizer.apply)
                reduce = replica.optimizer._all_reduce_sum_gradients
                replica.optimizer._all_reduce_sum_gradients = calling(self._reduce, number, reduce)

    def begin_forward(self) -> None:
        """Begin a forward pass of a user's model, of which a step may have several."""
        self.replicas.end_forward(self._owner)
        self.counterparts.begin()

    def forward(self, inputs: list[tf.Tensor]) -> None:
        """Begin a forward pass of a user's model, and record its inputs, which are in canonical axis order."""
        self.begin_forward()
        self._emit([Seen("input", "input", tensor) for tensor in inputs])

    def outputs(self, named: list[tuple[str, tf.Tensor]]) -> None:
        """Record what a user's model returned, in canonical axis order; the recorder numbers outputs without names."""
        unnumbered = [(keys.MODEL if name.startswith(f"{keys.MODEL}#") else name, tensor) for name, tensor in named]
        self._emit([Seen("activation", name, tensor) for name, tensor in unnumbered])

    def watched_loss(self, loss: Original, outputs: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Return a loss; record it with the target."""
        value = loss(outputs, target)
        self._flush()
        self.replicas.end_forward(self._here())
        if self.replicas.gathered:
            self._emit([Seen("loss", "loss", value), Seen("loss", "samples", tf.shape(target)[0])])
            return value
        # fit passes class ids as floats; record them as the integers that they are on the other side.
        is_class_ids = self.case.loss.kind == "cross_entropy"
        self.loss(value, tf.cast(target, tf.int64) if is_class_ids else target)
        return value

    def loss(self, value: tf.Tensor, target: tf.Tensor | None) -> None:
        """Record the loss, or the scalar that is differentiated, and the target."""
        if target is not None:
            self._emit([Seen("input", "target", target)])
        self._emit([Seen("loss", "loss", value)])

    def gradients(self, inputs: Mapping[str, np.ndarray], values: Gradients, evidence: Mapping[str, Gradients]) -> None:
        """Record the gradients of a user's inputs, in canonical axis order, and of the variables, by id(variable).

        `evidence`: by its suffix (see parity/trace/keys.py), what an optimizer makes of the variables' gradients.
        """
        if self.replicas.first.wants("gradient"):
            weights = self.replicas.by_number[self._owner].weights
            of_inputs = ((f"{keys.INPUT}.{name}", array) for name, array in inputs.items())
            for name, gradient in itertools.chain(weights.gradients(values), of_inputs):
                self.replicas.first.add("gradient", name, gradient)
            for suffix, made in evidence.items():
                for name, array in weights.gradients(made) if made else ():
                    if array.any():  # it is of zeros for every weight that is not asked for
                        self.replicas.first.add("gradient", name + suffix, array)

    def on_step(self) -> None:
        """Record the state of every replica; called before the first step and after each update."""
        if self.layout_recorder.recording:
            self.layout_recorder.stop()
        self.replicas.end_step()
        if self.counterparts:
            self.counterparts.end_step()

    def reduction(self, all_reduce: Original, *args: Any) -> Any:
        """Call a strategy's own all_reduce, and record the gradients that enter it.

        Its arguments are the gradients of the replica that calls it, or the chains of stages of all replicas and their
        gradients.
        """
        *chains, gradients = args
        if chains and self.replicas.local:
            for number, (chain, stages) in enumerate(zip(chains[0], gradients, strict=True)):
                self._gradients(number, itertools.chain(*stages), chain.variables, keys.LOCAL)
        elif self.replicas.local:
            number = self._here()
            variables = self.replicas.by_number[number].model.trainable_variables
            self._gradients(number, gradients, variables, keys.LOCAL)
        return all_reduce(*args)

    def _on_call(self, number: int, call: calls.Call) -> None:
        """Note what a layer is given; of a user's layer, that is known when its outputs are.

        One that a user's step calls again itself, as one of several models, begins another forward pass.
        """
        self._owner = number
        path = module_path(call.path)
        if self.counterparts:
            is_part = isinstance(self.replicas.by_number[number].model, keras.Layer) and not calls.running()
            if is_part and self.counterparts.has_seen(call.path):
                self.begin_forward()
            return
        if not path:
            self._see(Seen("input", "input", tensor) for tensor in tf.nest.flatten(call.args[0]))
        elif self.replicas.takes_input(path):
            given = tree.arguments(call.module, call.args, call.path in self._leaves)
            self._see(Seen("input", path, tensor) for tensor in given)

    def _on_return(self, call: calls.Call, outputs: Any) -> None:
        """Note what a layer returns; a traced pass is handed over as a whole, when the model returns."""
        path = module_path(call.path)
        if self.counterparts:
            self._see(self.counterparts.seen(call, outputs, self.modules))
        elif self.replicas.takes_output(path) and (path or not self.replicas.gathered):
            if path:
                self.modules[path.partition("@")[0]] = tree.kind(call.module)
            self._see(Seen("activation", path or keys.MODEL, tensor) for tensor in tf.nest.flatten(outputs))
        if not call.path or tf.executing_eagerly():
            self._flush()

    def _see(self, seen: Iterable[Seen]) -> None:
        self._seen[self._here()] += seen

    def _apply(
        self,
        replica: Replica,
        apply: Original,
        gradients: list[tf.Tensor],
        variables: list[keras.Variable] | None = None,
    ) -> None:
        """Let an optimizer apply gradients; record those of each replica before they are reduced."""
        self._applied = replica.model.trainable_variables if variables is None else variables
        # A strategy that reduces by itself has them recorded by `reduction`.
        if self.replicas.local and not self.case.distribution.reduces_itself:
            self._gradients(self._here(), gradients, self._applied, keys.LOCAL)
        apply(gradients, variables)

    def _reduce(self, number: int, reduce: Original, pairs: list[tuple[tf.Tensor, tf.Variable]]) -> list:
        """Let an optimizer reduce gradients over replicas; record the result, which is applied."""
        reduced = list(reduce(pairs))
        self._owner = number
        if self._here() == 0 or not self.replicas.gathered:
            self._gradients(self._here(), [gradient for gradient, _ in reduced], self._applied, "")
        return reduced

    def _gradients(
        self, number: int, gradients: Iterable[tf.Tensor], variables: list[keras.Variable], suffix: str
    ) -> None:
        """Record gradients under the canonical names of the variables, with a suffix."""
        pairs = zip(gradients, variables, strict=True)
        values = {id(variable): tf.convert_to_tensor(gradient) for gradient, variable in pairs if gradient is not None}
        with tf.name_scope(f"{partitions.RECORDING}/"):
            named = list(self.replicas.by_number[number].weights.gradients(values))
        self._emit([Seen("gradient", name + suffix, tensor) for name, tensor in named], number)

    def _here(self) -> int:
        """Return the number of the replica whose code is running or being traced; a user's model has one recorder."""
        return self._owner if self.counterparts else devices.replica(self._owner)

    def _flush(self) -> None:
        number = self._here()
        self.replicas.hand_over(number, self._seen.pop(number, []), passed=True)

    def _emit(self, seen: list[Seen], number: int | None = None) -> None:
        self.replicas.hand_over(self._here() if number is None else number, seen)
