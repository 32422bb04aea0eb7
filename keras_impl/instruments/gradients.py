"""What spoils gradients: where their path ends in the program's own lines, and values that are not finite.

Of these the first op is reported that made a NaN or an infinity of finite inputs, if its result reached something that
matters.
"""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.instruments import source
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.origins import Origins
from parity.doctor import rewrite
from parity.doctor.evidence import Code, Cut, NotFinite, Place, Step
from parity.doctor.rewrite import Expression

GIVEN = ("ReadVariableOp", "Const", "Fill", "Identity")  # they pass on what was not finite before, or is intended


class Cuts:
    """Records the cuts in the step."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self.integers = rewrite.Integers(_is_label, _cross_entropy)

    def see(self, operation: str, inputs: tuple, outputs: list, view: source.View) -> None:
        """Note an op of the program's own; called before the tape learns of its result."""
        if not inputs or not self.origins.of(inputs[0]).recorded:
            return
        if operation == "StopGradient":
            self._note("stop_gradient", inputs[0], view).mended = rewrite.code(source.spot(), Expression.unwrapped)
        elif operation in ("ArgMax", "ArgMin") or (operation == "Cast" and outputs[0].dtype.is_integer):
            cut = self._note("integers", inputs[0], view)
            self.integers.cuts.append((cut, weakref.ref(inputs[0]), outputs[0].shape))

    def enter(self, enter: Callable[..., Any], tape: tf.GradientTape) -> Any:
        """Enter a tape: a call just outside of it should be moved after this line."""
        if self.calls.outside is not None and (frame := source.frame()):
            (cut, statement), self.calls.outside = self.calls.outside, None
            if statement and statement.file == frame.f_code.co_filename:
                moved = f"{statement.text()}  # moved after line {frame.f_lineno}"
                cut.mended = Code(source=cut.place.source, fix=moved)
        return enter(tape)

    def _note(self, what: str, tensor: tf.Tensor, view: source.View) -> Cut:
        cut = Cut(what=what, tensor=self.origins.describe(tensor), place=self.calls.place(view))
        self.step.cuts.append(cut)
        return cut


def _is_label(value: Any, shape: tf.TensorShape) -> bool:
    return isinstance(value, tf.Tensor) and value.dtype.is_integer and value.shape == shape


def _cross_entropy(_: Expression, scores: str, labels: str) -> str:
    return f"tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits({labels}, {scores}))"


class Finite:
    """Follows values that are not finite from the op that made them."""

    def __init__(self, step: Step, calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins

    def see(self, operation: str, inputs: tuple[tf.Tensor, ...], outputs: list[tf.Tensor], place: Place) -> None:
        """Handle one op that has run."""
        bad = [tensor for tensor in outputs if not is_finite(tensor)]
        if not bad:
            return
        inherited = next((fault for tensor in inputs if (fault := self.origins.of(tensor).fault)), None)
        fault = inherited or self._made(operation, inputs, bad[0], place)
        for tensor in bad:
            self.origins.of(tensor).fault = fault

    def reached(self, tensor: tf.Tensor) -> None:
        """Report a loss or a gradient, which may be not finite."""
        self.step.not_finite = self.step.not_finite or self.origins.of(tensor).fault

    def returned(self, outputs: list[Any]) -> None:
        """Report a module's outputs; only -inf, of which masks are made, is accepted."""
        for tensor in outputs:
            if isinstance(tensor, tf.Tensor) and self.origins.of(tensor).fault and not (_values(tensor) < np.inf).all():
                self.reached(tensor)

    def _made(self, operation: str, inputs: tuple[tf.Tensor, ...], output: tf.Tensor, place: Place) -> NotFinite | None:
        """Return the op as the cause, if its inputs were finite."""
        # A NaN also has its cause here if the inputs had infinities but no NaN: a softmax of a row that is all masked.
        values, result = [_values(tensor) for tensor in inputs if tensor.dtype.is_floating], _values(output)
        nan = bool(np.isnan(result).any())
        not_finite = [np.isnan(array).any() if nan else not np.isfinite(array).all() for array in values]
        if any(not_finite) or operation in GIVEN or (operation == "Cast" and bool((result < np.inf).all())):
            return None
        became, filled = "nan" if nan else "inf", [array for array in values if array.size]
        smallest = min((float(array.min()) for array in filled), default=None)
        largest = max((float(array.max()) for array in filled), default=None)
        return NotFinite(operation=operation, became=became, smallest=smallest, largest=largest, place=place)


def is_finite(tensor: tf.Tensor) -> bool:
    """Return whether all numbers in the tensor are finite."""
    return not tensor.dtype.is_floating or bool(np.isfinite(_values(tensor)).all())


def _values(tensor: tf.Tensor) -> Any:
    return tensor._numpy()  # not `numpy`, which is observed as the user's own reads
