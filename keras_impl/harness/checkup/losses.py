"""Calls of loss functions, Keras's and TensorFlow's, found on the stack of the ops that they run."""

import threading
from types import FrameType
from typing import Any

import tensorflow as tf

from keras_impl.harness.checkup.calls import Calls
from keras_impl.harness.checkup.frames import View
from keras_impl.harness.checkup.origins import Known, Origins
from parity.checkup.evidence import LossCall, Step

MATRIX = ("MatMul", "BatchMatMulV2", "Einsum", "BiasAdd")
# What leaves the classes where they are.
KEPT = ("AddV2", "Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "Softmax", "LogSoftmax")
CLASSES = ("sparse_categorical_crossentropy", "categorical_crossentropy", "softmax_cross_entropy_with_logits")


class Losses:
    """Notes each call once, by the first op in it."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self._last: dict[int, FrameType] = {}  # the call that runs in each thread

    def see(self, view: View) -> None:
        """An op runs."""
        thread = threading.get_ident()
        if view.loss is None or self._last.get(thread) is view.loss:
            return
        self._last[thread] = view.loss
        given = view.loss.f_locals
        output, target = (
            given.get(one, given.get(other)) for one, other in (("y_pred", "logits"), ("y_true", "labels"))
        )
        outputs, targets = tf.nest.flatten(output), tf.nest.flatten(target)
        if not isinstance(outputs[0], tf.Tensor) or not hasattr(targets[0], "dtype"):
            return
        self.step.losses.append(
            LossCall(
                function=_name(view.loss),
                input=self.origins.describe(outputs[0]),
                target=self.origins.describe(targets[0]),
                place=self.calls.place(view),
                straight=self.origins.of(outputs[0]).straight,
            )
        )


def is_straight(operation: str, inputs: list[Known]) -> bool:
    """Whether an op's result is what a linear layer made, reshaped at most."""
    return operation in MATRIX or (operation in KEPT and any(known.straight for known in inputs))


def _name(frame: FrameType) -> str:
    """As PyTorch calls it where it does, else as Keras."""
    own = frame.f_locals.get("self")
    function: Any = getattr(own, "fn", own)
    name = getattr(getattr(function, "func", function), "__name__", type(function).__name__)
    name = (name if own is not None else frame.f_code.co_name).removesuffix("_v2")
    if name in ("mean_squared_error", "MeanSquaredError"):
        return "mse_loss"
    return "cross_entropy" if name.removeprefix("sparse_") in CLASSES or name in CLASSES else name
