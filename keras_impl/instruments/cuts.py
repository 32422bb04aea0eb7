"""Gradient cuts: where a gradient's path ends in the program's own lines, and the line without the cut."""

import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import tensorflow as tf

from keras_impl.instruments import source
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.frames import View
from keras_impl.instruments.origins import Origins
from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Code
from parity.doctor.evidence.training import Cut
from parity.doctor.rewrite import Expression


class Cuts:
    """Records the cuts in the step."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        # Scores of which integers were made, with the cut and the shape of the integers.
        self._whole: list[tuple[Cut, weakref.ref, tf.TensorShape]] = []

    def see(self, operation: str, inputs: tuple, outputs: list, view: View) -> None:
        """Note an op of the program's own; called before the tape learns of its result."""
        if not inputs or not self.origins.of(inputs[0]).recorded:
            return
        if operation == "StopGradient":
            self._note("stop_gradient", inputs[0], view).mended = rewrite.code(source.spot(), Expression.unwrapped)
        elif operation in ("ArgMax", "ArgMin") or (operation == "Cast" and outputs[0].dtype.is_integer):
            self._whole.append((self._note("integers", inputs[0], view), weakref.ref(inputs[0]), outputs[0].shape))

    def entered(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the entering of a tape: a call just outside of it should be moved after this line."""

        def called(tape: tf.GradientTape) -> Any:
            if self.calls.outside is not None and (frame := source.frame()):
                (cut, statement), self.calls.outside = self.calls.outside, None
                if statement and statement.file == frame.f_code.co_filename:
                    moved = f"{statement.text()}  # moved after line {frame.f_lineno}"
                    cut.mended = Code(source=cut.place.source, fix=moved)
            return enter(tape)

        return called

    def explain_whole(self, target: tf.Tensor) -> None:
        """Find a correction for losses that were made of integers (such as argmax).

        Called when a backward pass begins, because by then scores, labels and loss have names in the user's code.
        """
        frame = source.frame()
        for cut, scores, shape in self._whole:
            if scores() is not None and frame is not None:
                cut.mended = _of_scores(frame, target, rewrite.name(frame, scores()), shape)

    def _note(self, what: str, tensor: tf.Tensor, view: View) -> Cut:
        cut = Cut(what=what, tensor=self.origins.describe(tensor), place=self.calls.place(view))
        self.step.cuts.append(cut)
        return cut


def _of_scores(frame: FrameType, target: tf.Tensor, scores: str, shape: tf.TensorShape) -> Code | None:
    """Return the line that made the loss, as a cross entropy of the scores."""
    expression = rewrite.assigned(frame, rewrite.name(frame, target))
    labels = [name for name, value in frame.f_locals.items() if _are_labels(value, shape)]
    if expression is None or not scores or not labels:
        return None
    function = "tf.nn.sparse_softmax_cross_entropy_with_logits"
    return expression.with_text(expression.node, f"tf.reduce_mean({function}({labels[0]}, {scores}))")


def _are_labels(value: Any, shape: tf.TensorShape) -> bool:
    return isinstance(value, tf.Tensor) and value.dtype.is_integer and value.shape == shape
