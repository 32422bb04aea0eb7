"""Calls of loss functions, Keras's and TensorFlow's, found on the call stack of the ops that they run.

From what goes in the doctor tells what is wrong, such as a softmax before a loss that expects logits.
"""

import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any

import keras
import tensorflow as tf

from keras_impl.instruments import source
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.origins import Known, Origins, tensors
from parity.doctor import order, rewrite
from parity.doctor.evidence import Code, LossCall, Step

RESHAPES = ("Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "ClipByValue")
ACTIVATIONS = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Sigmoid": "sigmoid"}
CLASSES = ("sparse_categorical_crossentropy", "categorical_crossentropy", "softmax_cross_entropy_with_logits")
# Keras's loss functions and their classes, whose first argument is from_logits.
LOGITS = {
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "binary_crossentropy": "BinaryCrossentropy",
}


class Losses:
    """Records each call of a loss once, at its first op; the step has these inputs."""

    def __init__(self, step: Step, inputs: Mapping[str, Any], calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self._last: dict[int, FrameType] = {}  # the call that is running in each thread
        self._samples = order.Samples(inputs, _rows, "tf.random.shuffle(tf.range(len(x)))")

    def fed(self, module: str, given: Any) -> None:
        """Note what a layer is called with."""
        self._samples.feed(module, tensors(given), lambda tensor: self.origins.of(tensor).picked)

    def see(self, view: source.View) -> None:
        """Handle one op, which may be the first of a loss."""
        thread = threading.get_ident()
        if view.loss is None or self._last.get(thread) is view.loss:
            return
        self._last[thread] = view.loss
        arguments = view.loss.f_locals
        outputs = tf.nest.flatten(arguments.get("y_pred", arguments.get("logits")))
        targets = tf.nest.flatten(arguments.get("y_true", arguments.get("labels")))
        if isinstance(outputs[0], tf.Tensor) and hasattr(targets[0], "dtype"):
            self.step.losses.append(self._loss(view, outputs[0], targets[0]))

    def _loss(self, view: source.View, outputs: tf.Tensor, target: Any) -> LossCall:
        known = self.origins.of(outputs)
        given, labels = self.origins.describe(outputs), self.origins.describe(target)
        name, place = _name(view.loss), self.calls.place(view)
        call = LossCall(function=name, input=given, target=labels, place=place, activation=known.activation)
        takes_logits = _takes_logits(view.loss)
        if takes_logits is not None and outputs.dtype.is_floating and len(outputs.shape):
            values = outputs._numpy().astype("float64")
            call.takes = "logits" if takes_logits else "probabilities"
            call.smallest, call.largest = (float(values.min()), float(values.max())) if values.size else (None, None)
            if call.function == "cross_entropy" and values.shape[-1] > 1 and values.size:
                sums, columns = values.sum(-1), values.sum(0)
                call.sums = float(sums.min()), float(sums.max())
                call.columns, call.by_class = (float(columns.min()), float(columns.max())), known.by_class
            call.mended = self._mended(view.loss, not takes_logits) or known.without
        call.rows, call.reordered = self._samples.explained(target, self.origins.of(target).picked)
        return call

    def _mended(self, loss: FrameType, logits: bool) -> Code | None:
        """Return the line that made or named the loss, with the other value of from_logits."""
        building, own = self.calls.building, loss.f_locals.get("self")
        spots = [building.spots.get(own) if own is not None else None, source.spot()]
        spots.append(building.compiled.get(self.calls.model))
        changed = (rewrite.code(spot, lambda call: _with_logits(call, _raw_name(loss), logits)) for spot in spots)
        return next(filter(None, changed), None)


def note_activation(known: Known, operation: str, inputs: list[Known], direct: bool) -> None:
    """Note the activation whose output an op's result is, at most reshaped, and the user's line without it."""
    known.activation = ACTIVATIONS.get(operation, "")
    if known.activation and direct:
        known.without = rewrite.code(source.spot(), rewrite.Expression.unwrapped)
    elif operation == "Transpose" and direct and inputs[0].activation == "softmax":  # TensorFlow's own, of the axes
        known.by_class = rewrite.code(source.spot(), lambda call: call.with_keyword("axis", "-1", 1))
    elif operation in RESHAPES and inputs:
        known.activation, known.without = inputs[0].activation, inputs[0].without


def _with_logits(call: rewrite.Expression, function: str, logits: bool) -> Code | None:
    """Return the line with `from_logits` set: in the loss, or in the compile() that names the loss."""
    kind = LOGITS.get(function, "")
    if call.function == "compile" and kind:
        node = call.argument("loss", 1)
        homes = {id(keras): "keras", id(tf): "tf.keras"}
        home = next((homes[id(value)] for value in call.names.values() if id(value) in homes), "keras")
        return call.with_text(node, f"{home}.losses.{kind}(from_logits={logits})")
    if kind and call.function in (kind, function):
        return call.with_keyword("from_logits", str(logits), 0 if call.function == kind else 2)
    return None


def _takes_logits(frame: FrameType) -> bool | None:
    """Return whether a cross entropy takes logits; None if the loss is not a cross entropy."""
    own, name = frame.f_locals.get("self"), _raw_name(frame)
    if name.endswith("_with_logits"):
        return True
    if name not in LOGITS:
        return None
    return bool(getattr(own, "_fn_kwargs", frame.f_locals).get("from_logits", False))


def _raw_name(frame: FrameType) -> str:
    own = frame.f_locals.get("self")
    function: Any = getattr(own, "fn", own)
    name = getattr(getattr(function, "func", function), "__name__", type(function).__name__)
    return (name if own is not None else frame.f_code.co_name).removesuffix("_v2")


def _name(frame: FrameType) -> str:
    """Return PyTorch's name of the loss if it has one, else Keras's."""
    name = _raw_name(frame)
    if name in ("mean_squared_error", "MeanSquaredError"):
        return "mse_loss"
    return "cross_entropy" if name.removeprefix("sparse_") in CLASSES or name in CLASSES else name


def _rows(tensor: Any) -> order.Rows:
    values = tensor._numpy() if isinstance(tensor, tf.Tensor) and tensor.dtype.is_numpy_compatible else tensor
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    return order.rows(values) if kind in "fiub" and kind and 0 < values.size <= order.LARGE else []
