"""The first op that made a NaN or an infinity of finite inputs, if its result reached something that matters."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.instruments.calls import Calls
from keras_impl.instruments.origins import Origins
from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Place
from parity.doctor.evidence.ops import NotFinite

GIVEN = ("ReadVariableOp", "Const", "Fill", "Identity")  # they pass on what was not finite before, or is intended


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
        """Return the op as the cause, if its inputs were finite.

        A NaN also has its cause here if the inputs had infinities but no NaN, as a softmax of a row that is all masked.
        """
        values, result = [_values(tensor) for tensor in inputs if tensor.dtype.is_floating], _values(output)
        nan = bool(np.isnan(result).any())
        not_finite = [np.isnan(array).any() if nan else not np.isfinite(array).all() for array in values]
        if any(not_finite) or operation in GIVEN or (operation == "Cast" and bool((result < np.inf).all())):
            return None
        return NotFinite(
            operation=operation,
            became="nan" if nan else "inf",
            smallest=min((float(array.min()) for array in values if array.size), default=None),
            largest=max((float(array.max()) for array in values if array.size), default=None),
            place=place,
        )


def is_finite(tensor: tf.Tensor) -> bool:
    """Return whether all numbers in the tensor are finite."""
    return not tensor.dtype.is_floating or bool(np.isfinite(_values(tensor)).all())


def _values(tensor: tf.Tensor) -> Any:
    return tensor._numpy()  # not `numpy`, which is observed as the user's own reads
