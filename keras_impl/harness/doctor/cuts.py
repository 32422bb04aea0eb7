"""Where the way of a gradient ends in the program's own lines, and how such a line reads without that."""

import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import tensorflow as tf

from keras_impl.harness.doctor import source
from keras_impl.harness.doctor.calls import Calls
from keras_impl.harness.doctor.frames import View
from keras_impl.harness.doctor.origins import Origins
from parity.doctor import rewrite
from parity.doctor.evidence import Code, Cut, Step
from parity.doctor.rewrite import Expression


class Cuts:
    """Notes them in the step."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self._whole: list[tuple[Cut, weakref.ref, tf.TensorShape]] = []  # scores, and a result's shape

    def see(self, operation: str, inputs: tuple, outputs: list, view: View) -> None:
        """An op of the program's own; the tape is told of it only now."""
        if not inputs or not self.origins.of(inputs[0]).recorded:
            return
        if operation == "StopGradient":
            self._note("stop_gradient", inputs[0], view).mended = rewrite.code(source.spot(), Expression.unwrapped)
        elif operation in ("ArgMax", "ArgMin") or (operation == "Cast" and outputs[0].dtype.is_integer):
            self._whole.append((self._note("integers", inputs[0], view), weakref.ref(inputs[0]), outputs[0].shape))

    def entered(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        """A tape begins: what was called outside of it belongs behind this line."""

        def called(tape: tf.GradientTape) -> Any:
            if self.calls.outside is not None and (frame := source.frame()):
                (cut, statement), self.calls.outside = self.calls.outside, None
                if statement and statement.file == frame.f_code.co_filename:
                    moved = f"{statement.text()}  # moved after line {frame.f_lineno}"
                    cut.mended = Code(source=cut.place.source, fix=moved)
            return enter(tape)

        return called

    def explain_whole(self, target: tf.Tensor) -> None:
        """A tape is asked, by which time scores, labels and the loss have names: a loss of scores."""
        frame = source.frame()
        for cut, scores, shape in self._whole:
            if scores() is not None and frame is not None:
                cut.mended = _of_scores(frame, target, rewrite.name(frame, scores()), shape)

    def _note(self, what: str, tensor: tf.Tensor, view: View) -> Cut:
        cut = Cut(what=what, tensor=self.origins.describe(tensor), place=self.calls.place(view))
        self.step.cuts.append(cut)
        return cut


def _of_scores(frame: FrameType, target: tf.Tensor, scores: str, shape: tf.TensorShape) -> Code | None:
    """The line that made the loss, as a cross entropy of the scores."""
    made = rewrite.assigned(frame, rewrite.name(frame, target))
    labels = [name for name, value in frame.f_locals.items() if _are_labels(value, shape)]
    if made is None or not scores or not labels:
        return None
    function = "tf.nn.sparse_softmax_cross_entropy_with_logits"
    return made.with_text(made.node, f"tf.reduce_mean({function}({labels[0]}, {scores}))")


def _are_labels(value: Any, shape: tf.TensorShape) -> bool:
    return isinstance(value, tf.Tensor) and value.dtype.is_integer and value.shape == shape
