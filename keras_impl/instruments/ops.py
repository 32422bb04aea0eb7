"""What the ops of a step do: where they run, how their results derive from their inputs, broadcasts, gradient cuts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe  # what a tape records, and its gradient functions, have no public API
from tensorflow.python.eager import backprop, context
from tensorflow.python.framework import op_callbacks

from keras_impl.instruments import source
from keras_impl.instruments.build import Scopes
from keras_impl.instruments.copies import NO_NUMBERS, Copies
from keras_impl.instruments.gradients import Cuts, Finite
from keras_impl.instruments.losses import Losses, note_activation
from keras_impl.instruments.origins import MOVES, Known
from parity.doctor import rewrite
from parity.doctor.evidence import Broadcast, Code, Place, Soft

PICKS = ("GatherV2", "RandomShuffle", "RandomShuffleV2")
COMPARISONS = ("Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual", "Maximum", "Minimum")
ARITHMETIC = ("AddV2", "Sub", "Mul", "RealDiv", "DivNoNan", "FloorDiv", "FloorMod", "Pow", "SquaredDifference")
READS = ("ReadVariableOp",)
SCALES = ("Mul", "RealDiv", "DivNoNan")


class Ops:
    """Sees every op that is executed; in eager mode these include the ops of a backward pass."""

    def __init__(self, copies: Copies, finite: Finite, devices: list[str], losses: Losses, cuts: Cuts):
        self.copies, self.finite = copies, finite
        self.step, self.calls, self.origins = copies.step, copies.calls, copies.origins
        self.losses, self.cuts = losses, cuts
        self.devices = ["CPU:0", *devices]
        self._scopes = Scopes()
        self._forward = threading.local()  # `place` is that of the op whose gradient is being computed

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Observe ops within the block."""
        op_callbacks.add_op_callback(self._see)
        pywrap_tfe.TFE_Py_RegisterGradientFunction(self._differentiate)
        try:
            with self._scopes.watched():
                yield
        finally:
            pywrap_tfe.TFE_Py_RegisterGradientFunction(backprop._gradient_function)
            op_callbacks.remove_op_callback(self._see)

    def _see(
        self, kind: Any, inputs: tuple, attributes: tuple, outputs: list, op_name: Any = None, graph: Any = None
    ) -> None:
        """Handle one op; TensorFlow calls this back after each."""
        if graph is not None:
            return
        operation, view = kind.decode() if isinstance(kind, bytes) else kind, source.look()
        if self.calls.phase == "backward":
            view = view._replace(direct=False)  # these ops are TensorFlow's, not the user's
        self.losses.see(view)
        # It ran where a result is by its `.device`; the result itself may be elsewhere (`.backing_device`): a GPU op
        # keeps shapes in host memory.
        tensor = next(iter((*outputs, *inputs)), None)
        here = tensor.device if tensor is not None else context.context().device_name or ""
        target = self.origins.device_named(here)
        self.copies.see(operation, inputs, target, view)
        self._see_elsewhere(operation, inputs, outputs, target, view)
        self._see_shapes(operation, inputs, view)
        if view.direct and operation == "Cast" and outputs[0].dtype == tf.float16:
            self.step.half = self.step.half or view.line
        if view.direct:
            self.cuts.see(operation, inputs, outputs, view)
        # A backward op is where the op is whose gradient it computes.
        place = getattr(self._forward, "place", None) or self.calls.place(view)
        self._note_outputs(operation, inputs, outputs, view, place)
        self.finite.see(operation, inputs, outputs, place)

    def _differentiate(
        self, operation: str, attributes: tuple, number: int, inputs: Any, outputs: Any, *rest: Any
    ) -> Any:
        """Compute the gradient of one op, noting which op it belongs to."""
        # The op's own tensors, as far as its gradient needs them, tell where it was.
        own = (*(outputs or ()), *(inputs or ()))
        known = [self.origins.of(tensor) for tensor in own if isinstance(tensor, tf.Tensor)]
        first = next((facts for facts in known if facts.module or facts.made), Known())
        self._forward.place = Place(module=first.module, source=first.made, phase="backward")
        try:
            return backprop._gradient_function(operation, attributes, number, inputs, outputs, *rest)
        finally:
            self._forward.place = None

    def _see_elsewhere(self, operation: str, inputs: tuple, outputs: list, target: str, view: source.View) -> None:
        """Record an op that did not run where the program's tf.device asks for."""
        # An op on a variable runs where the variable is, whatever tf.device says.
        asked = self._scopes.open[-1].device if self._scopes.open else target
        if asked == target:
            return
        numbers = outputs and not any(tensor.dtype in NO_NUMBERS for tensor in (*inputs, *outputs))
        in_force = asked not in self.devices or self.origins.device_named(context.context().device_name) == asked
        if not numbers or not in_force:
            return
        for soft in self.step.soft:
            if (soft.asked, soft.place.source) == (asked, view.line):
                soft.count += 1
                return
        self.step.soft.append(Soft(asked=asked, ran=target, operation=operation, place=self.calls.place(view)))

    def _see_shapes(self, operation: str, inputs: tuple, view: source.View) -> None:
        if operation not in (*COMPARISONS, *ARITHMETIC) or not view.direct:
            return
        left, right = inputs
        if left.shape.rank and right.shape.rank and left.shape != right.shape:
            first, second = map(self.origins.describe, inputs)
            broadcast = Broadcast(operation=operation, left=first, right=second, place=self.calls.place(view))
            axes = left.shape.rank, right.shape.rank
            broadcast.squeezed = rewrite.code(source.spot(), lambda op: op.squeezed(*axes, "tf.squeeze({}, -1)"))
            self.step.broadcasts.append(broadcast)

    def _note_outputs(self, operation: str, inputs: tuple, outputs: list, view: source.View, place: Place) -> None:
        sources = list(map(self.calls.variable if operation in READS else self.origins.of, inputs))
        # Ask whether a tape records the inputs, since it learns of the results only after this callback.
        recorded = pywrap_tfe.TFE_Py_TapeSetShouldRecordBackprop(list(inputs))
        moved, device = operation in (*MOVES, *READS), self.origins.device
        first = 1 if operation == "Split" else 0  # the first input of Split is the axis
        for tensor in outputs:
            known = Known(made=view.line, module=place.module)
            if moved:
                known.origin = sources[first].origin
            if moved and (tensor.dtype, device(tensor)) == (inputs[first].dtype, device(inputs[first])):
                known.made = sources[first].made
            known.origin = known.origin or ("loss" if view.loss else "")
            known.recorded = recorded and tensor.dtype.is_floating
            note_activation(known, operation, sources, view.direct)
            if operation in PICKS and self.calls.phase != "backward":
                known.picked = source.spot()
            elif moved:
                known.picked = sources[first].picked
            known.scaled = _is_scaled(operation, tensor, inputs, sources, view)
            if tensor.shape.rank == 0 and tf.distribute.has_strategy():
                known.average = _average(operation, inputs, sources, view)
            self.origins.note(tensor, known)


def _is_scaled(operation: str, tensor: tf.Tensor, inputs: tuple, before: list[Known], view: source.View) -> bool:
    """Return whether the user's line made this scalar as a product or quotient; Keras may scale it further."""
    if tensor.shape.rank != 0 or operation not in (*SCALES, "Cast", "Identity"):
        return False
    is_users = operation in SCALES and view.direct and all(tensor_in.shape.rank == 0 for tensor_in in inputs)
    return is_users or any(known.scaled for known in before)


def _average(operation: str, inputs: tuple, before: list[Known], view: source.View) -> Code | None:
    """Return the user's line that made this scalar as a mean, as it should read where replicas add up gradients."""
    # A scalar that was multiplied or divided since may be right.
    if operation == "Mean" and view.direct and inputs[0].shape.rank:
        is_by_sample = inputs[0].shape.rank == 1
        return rewrite.code(source.spot(), lambda call: _over_replicas(call, is_by_sample)) or Code(source=view.line)
    added = [known.average for known in before] if operation in ("AddV2", "AddN", "Identity", "Cast") else []
    return next(filter(None, added), None)


def _over_replicas(call: rewrite.Expression, is_by_sample: bool) -> Code | None:
    name = call.called(tf, "tf")
    if is_by_sample and call.function == "reduce_mean" and len(call.node.args) == 1 and not call.node.keywords:
        return call.with_text(call.node, f"{name}.nn.compute_average_loss({call.text(call.node.args[0])})")
    divided = f"{call.text()} / {name}.distribute.get_strategy().num_replicas_in_sync"
    return call.with_text(call.node, divided) if call.text() else None
