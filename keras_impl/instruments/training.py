"""How a step trains: its backward passes, their gradients, and the optimizers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from tensorflow.python.eager import context  # op callbacks have no public API to suspend them

from keras_impl.instruments import devices, names, source
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.gradients import Cuts, Finite, is_finite
from keras_impl.instruments.origins import Known, Origins, copies, tensors
from parity.core.patches import Original, around
from parity.doctor import rewrite
from parity.doctor.evidence import Backward, Gradient, Optimizer, Step


class Training:
    """Observes the training in a step."""

    def __init__(self, step: Step, calls: Calls, origins: Origins, finite: Finite, cuts: Cuts):
        self.step, self.calls, self.origins, self.finite, self.cuts = step, calls, origins, finite, cuts
        self._gradients: dict[int, Any] = {}  # the last tape's gradient, by id of TensorFlow's variable
        self._stepped: dict[int, tuple[keras.Optimizer, list[Any]]] = {}
        # By optimizer, of the update that grew most: the learning rate, and the parameters' size before and after it.
        self._growth: dict[int, dict[str, float]] = {}
        self._updates = 0
        self._start: dict[int, tf.Tensor] = {}  # what each parameter was when the step began, by id

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record in the step what happens within the block."""
        self._start = {id(entry.variable): _read(entry.variable) for entry in names.variables(self.calls.model)}
        with (
            self.calls.building.noting_optimizers(),
            around(tf.GradientTape, "gradient", self._differentiate),
            around(tf.GradientTape, "__enter__", self.cuts.enter),
            around(BaseOptimizer, "apply", self._apply),
            around(LossScaleOptimizer, "apply", self._apply),
        ):
            yield

    def end(self) -> None:
        """Record the state of each parameter's gradient and of each optimizer, when the step is over."""
        variables = list(names.variables(self.calls.model))
        own = {id(variable) for variable in getattr(self.calls.model, "trainable_variables", ())}
        trained = [entry for entry in variables if id(entry.variable) in own]
        self.step.gradients = [Gradient(parameter=entry.name, state=self._state(entry)) for entry in trained]
        pairs = zip((entry.variable for entry in trained), self.step.gradients, strict=True)
        known = [(variable, gradient) for variable, gradient in pairs if id(variable) in self._start]
        learning = [self._start[id(variable)] for variable, gradient in known if gradient.state != "none"]
        for variable, gradient in known:
            if gradient.state == "none":
                gradient.copy = self._copied(variable, learning)
        named = {id(entry.variable): entry.name for entry in variables}
        by_id = {id(optimizer): optimizer for optimizer in (*self.calls.building.optimizers, *self.stepped)}
        inner = {id(getattr(optimizer, "inner_optimizer", None)) for optimizer in by_id.values()}
        outer = [optimizer for key, optimizer in by_id.items() if key not in inner]
        self.step.optimizers = [self._optimizer(optimizer, named) for optimizer in outer]

    @property
    def stepped(self) -> list[keras.Optimizer]:
        """Return the optimizers that made an update."""
        return [optimizer for optimizer, _ in self._stepped.values()]

    def _differentiate(
        self, gradient: Original, tape: tf.GradientTape, target: Any, sources: Any, *args: Any, **kwargs: Any
    ) -> Any:
        given = bool(args and args[0] is not None) or kwargs.get("output_gradients") is not None
        is_root = not given and self.calls.phase != "backward" and devices.replica() == 0  # all make the same
        if is_root:
            self._begin(tensors(target))
        with self.calls.within("backward", "backward" if self.calls.phase == "backward" else "other"):
            result = gradient(tape, target, sources, *args, **kwargs)
        for variable, value in zip(tf.nest.flatten(sources), tf.nest.flatten(result), strict=True):
            self._note(variable, value)
        return result

    def _begin(self, targets: list[tf.Tensor]) -> None:
        """Record a backward pass from a loss; a pass that continues another one belongs to that."""
        known = [self.origins.of(tensor) for tensor in targets]
        for tensor, facts in zip(targets, known, strict=True):
            facts.origin = facts.origin or "loss"
            self.finite.reached(tensor)
        scaled = any(facts.scaled for facts in known)
        record = Backward(source=source.line(), scaled=scaled, kept=[], updates=self._updates)
        record.optimizer = rewrite.first_name(source.frame(), self.calls.building.optimizers, "optimizer")
        record.update = _update(record.optimizer)
        record.replicas = tf.distribute.get_strategy().num_replicas_in_sync
        record.average = next((facts.average for facts in known if facts.average), None)
        self.step.backwards.append(record)
        for target in targets:
            self.cuts.integers.explain(source.frame(), target)

    def _note(self, variable: Any, value: Any) -> None:
        """Note a gradient if it is a variable's; an embedding's consists of its rows only."""
        dense = value.values if isinstance(value, tf.IndexedSlices) else value
        if dense is None or not isinstance(variable, (keras.Variable, tf.Variable, tf.distribute.DistributedValues)):
            return
        known = self.origins.of(dense)
        self.origins.note(dense, Known("gradient", known.made, known.module, fault=known.fault))
        self.finite.reached(dense)
        for copy in copies(variable):
            self._gradients[id(copy)] = dense

    def _state(self, variable: names.Variable) -> Any:
        """Return the state of a parameter's gradient over all replicas: none, not_finite, finite or zero."""
        gradients = [self._gradients[id(copy)] for copy in copies(variable.variable) if id(copy) in self._gradients]
        if not gradients:
            return "none"
        if not all(is_finite(tensor) for tensor in gradients):
            return "not_finite"
        return "finite" if any(np.any(tensor._numpy()) for tensor in gradients) else "zero"

    def _copied(self, variable: Any, learning: list[tf.Tensor]) -> Any:
        """Return whether a variable without a gradient is a copy that the program itself keeps, as evidence says it."""
        start = self._start[id(variable)]._numpy()
        if not np.array_equal(start, _value(variable), equal_nan=True):
            return "copy"
        is_equal = any(np.array_equal(start, value._numpy()) for value in learning if value.shape == start.shape)
        return ("copy" if (start != start.flat[0]).any() else "constant") if is_equal and start.size else ""

    def _apply(self, apply: Original, optimizer: keras.Optimizer, grads: Any, trainable_variables: Any = None) -> None:
        """Apply gradients by an optimizer; record the update, and how much it changes the parameters' size."""
        self.step.loss_scaled = self.step.loss_scaled or isinstance(optimizer, LossScaleOptimizer)
        afterwards = "update" if self.calls.phase == "update" else "other"
        # Whether a replica's optimizer is given what the last backward pass returned, not scaled or reduced before.
        dense = [each.values if isinstance(each, tf.IndexedSlices) else each for each in grads if each is not None]
        is_unchanged = all(self.origins.of(each).origin == "gradient" for each in dense)
        if self.step.backwards and tf.distribute.in_cross_replica_context() is False and is_unchanged:
            self.step.backwards[-1].summed = True
        with self.calls.within("update", afterwards):
            held = trainable_variables or getattr(optimizer, "_trainable_variables", ())
            held = list(held) if tf.executing_eagerly() else []
            before = root_mean_square(held)
            apply(optimizer, grads, trainable_variables)
            after = root_mean_square(held)
            most = self._growth.get(id(optimizer), {"before": 1.0, "after": 0.0})
            # Written so that NaN counts as growth.
            if before and not after * most["before"] <= most["after"] * before:
                rate = float(_value(optimizer.learning_rate))
                self._growth[id(optimizer)] = {"rate": rate, "before": before, "after": after}
        self._stepped[id(optimizer)] = optimizer, list(trainable_variables or ())
        self._updates += 1

    def _optimizer(self, optimizer: keras.Optimizer, named: dict[int, str]) -> Optimizer:
        _, given = self._stepped.get(id(optimizer), (None, []))
        held = {id(variable) for variable in (*getattr(optimizer, "_trainable_variables", ()), *given)}
        made = self.calls.building.spots.get(optimizer)
        kind, line = type(optimizer).__name__, self.calls.building.optimizers.get(optimizer, "")
        parameters, stepped = [name for key, name in named.items() if key in held], id(optimizer) in self._stepped
        slower = rewrite.code(made, lambda call: call.with_keyword("learning_rate", "1e-3", 0))
        growth = self._growth.get(id(optimizer), {})
        return Optimizer(kind=kind, source=line, parameters=parameters, stepped=stepped, slower=slower, **growth)


def _update(optimizer: str) -> str:
    """Return the line that would apply the gradients after the user's line; "" if that gives them no name."""
    call, statement = rewrite.expression(source.spot()), rewrite.statement(source.spot())
    if call is None or statement is None or call.function != "gradient" or len(call.node.args) < 2:
        return ""
    names = [statement.text(target) for target in getattr(statement.node, "targets", ())]
    return f"{optimizer}.apply({names[0]}, {call.text(call.node.args[1])})" if names else ""


def root_mean_square(variables: Any) -> float:
    """Return the root mean square of all numbers in these variables together."""
    arrays = [_value(variable).astype("float64") for variable in variables]
    total = sum(array.size for array in arrays)
    return float(np.sqrt(sum(float(np.square(array).sum()) for array in arrays) / max(total, 1)))


def _value(variable: Any) -> np.ndarray:
    return _read(variable)._numpy()


def _read(variable: Any) -> tf.Tensor:
    """Return a variable's value, unseen by the observers; of several copies the first."""
    first, thread = copies(variable)[0], context.context()._thread_local_data
    callbacks, thread.op_callbacks = thread.op_callbacks, []  # hide this read from the op callbacks
    try:
        return first if isinstance(first, tf.Tensor) else first._read_variable_op()
    finally:
        thread.op_callbacks = callbacks


def sizes(model: Any) -> list[float]:
    """Return the root mean square of each trainable parameter."""
    return [root_mean_square([variable]) for variable in getattr(model, "trainable_variables", ())]
